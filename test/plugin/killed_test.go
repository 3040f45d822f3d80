package plugin_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStatusReportsWhenAKilledProcessorWasLastHeard: it counts as alive until its Lease ends.
func TestStatusReportsWhenAKilledProcessorWasLastHeard(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	replicas := []string{e.start("watcher").Identity, e.start("processor").Identity}
	var r result
	isSilent := false
	for attempt := 0; attempt < 5 && !isSilent; attempt++ { // on a busy machine a Lease may end unseen
		killed := e.start("processor")
		require.NoError(t, killed.Kill())
		line := regexp.MustCompile(`\n  Silent: +` + killed.Identity + `, last heard \d+s ago\n`)
		e.eventually(func(c *assert.CollectT) {
			r = e.run("status", "-o", "wide")
			isSilent = line.MatchString(r.stdout)
			assert.True(c, isSilent || !strings.Contains(r.stdout, killed.Identity))
		}, "it is reported as silent, or its Lease has ended")
		if isSilent {
			replicas = append(replicas, killed.Identity)
		}
	}
	require.True(t, isSilent)
	assert.Zero(t, r.code, "silence makes nothing unwell")
	for _, identity := range replicas {
		assert.Regexp(t, `\n  `+identity+`: alive, last heard \d+s ago, `, r.stdout)
	}
}
