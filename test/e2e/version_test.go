package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// TestEveryProgramPrintsItsVersion checks that make stamps the programs it builds.
func TestEveryProgramPrintsItsVersion(t *testing.T) {
	t.Parallel()
	count, err := programs.CheckVersions(t.Context(), "cmd")
	require.NoError(t, err)
	assert.Equal(t, 5, count)
}
