package program

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// TestTheProgramHasAVersion checks that make stamps the programs it builds.
func TestTheProgramHasAVersion(t *testing.T) {
	t.Parallel()
	count, err := programs.CheckVersions(t.Context(), "placement/cmd")
	require.NoError(t, err)
	assert.Equal(t, 1, count)
}
