package repository_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

func TestRootPassesOverNestedModules(t *testing.T) {
	want, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	for _, dir := range []string{".", want, filepath.Join(want, "hack", "images"), filepath.Join(want, "tools")} {
		t.Chdir(dir)
		root, err := repository.Root()
		require.NoError(t, err, dir)
		assert.Equal(t, want, root, dir)
	}
}

func TestRootIsAnErrorOutsideOfTheRepository(t *testing.T) {
	t.Chdir(os.TempDir())
	_, err := repository.Root()
	require.ErrorContains(t, err, "is not inside of it")
}
