package e2e_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// TestEveryProgramPrintsItsVersion checks that make stamps the programs it builds.
func TestEveryProgramPrintsItsVersion(t *testing.T) {
	t.Parallel()
	versions, err := programs.Versions(t.Context(), "cmd")
	require.NoError(t, err)
	assert.Len(t, versions, 5)
	for name, version := range versions {
		assert.Regexp(t, `^`+name+` \S+ \(commit [0-9a-f]{40}, `+runtime.Version()+`\)\n$`, version)
	}
}
