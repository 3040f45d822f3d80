package program

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// TestTheProgramHasAVersion checks that make stamps the programs it builds.
func TestTheProgramHasAVersion(t *testing.T) {
	t.Parallel()
	versions, err := programs.Versions(t.Context(), "placement/cmd")
	require.NoError(t, err)
	assert.Len(t, versions, 1)
	for name, version := range versions {
		assert.Regexp(t, `^`+name+` \S+ \(commit [0-9a-f]{40}, `+runtime.Version()+`\)\n$`, version)
	}
}
