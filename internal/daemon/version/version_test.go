package version

import (
	"runtime/debug"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
)

func TestCommitIsRecordedByToolchain(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}
	dirty := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for name, tc := range map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"not recorded":      {nil, "unknown"},
		"unchanged":         {[]debug.BuildSetting{commit, {Key: "vcs.modified", Value: "false"}}, "abc"},
		"with changes":      {[]debug.BuildSetting{commit, dirty}, "abc+dirty"},
		"order is no issue": {[]debug.BuildSetting{dirty, commit}, "abc+dirty"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, commitOf(tc.settings)) })
	}
}

func TestLineIsComplete(t *testing.T) {
	assert.Regexp(t, `^watcher devel \(commit \S+, go1\.\S+\)$`, Line("watcher"))
}

func TestMetricIsOne(t *testing.T) {
	assert.InDelta(t, 1, testutil.ToFloat64(Metric("watcher")), 0)
}
