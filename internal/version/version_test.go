package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDescribeAddsTheCommitWhereThereIsOne(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}
	for name, tc := range map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"not recorded":      {nil, "v1.2.3"},
		"unchanged":         {[]debug.BuildSetting{commit, {Key: "vcs.modified", Value: "false"}}, "v1.2.3 (abc)"},
		"with changes":      {[]debug.BuildSetting{commit, {Key: "vcs.modified", Value: "true"}}, "v1.2.3 (abc+dirty)"},
		"order is no issue": {[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, commit}, "v1.2.3 (abc+dirty)"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, describe("v1.2.3", tc.settings)) })
	}
}

func TestStringStartsWithTheVersion(t *testing.T) {
	assert.Contains(t, String(), Version)
}
