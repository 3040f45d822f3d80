package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// TestEveryProgramHasAVersion checks that make stamps the programs it builds.
func TestEveryProgramHasAVersion(t *testing.T) {
	t.Parallel()
	count, err := programs.CheckVersions(t.Context(), "sharding/cmd")
	require.NoError(t, err)
	assert.Equal(t, 2, count)
}
