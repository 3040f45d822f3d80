package controlplane

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLaunchersRunWhileOthersAreWritten: many tests of one process start control planes at once.
func TestLaunchersRunWhileOthersAreWritten(t *testing.T) {
	t.Parallel()
	assets := t.TempDir()
	program, err := exec.LookPath("true")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(program, filepath.Join(assets, string(Etcd))))
	var all sync.WaitGroup
	for range 8 {
		dir := t.TempDir()
		all.Go(func() {
			for range 25 {
				path, err := writeLauncher(dir, assets, Etcd)
				if assert.NoError(t, err) {
					assert.NoError(t, exec.CommandContext(t.Context(), path).Run())
				}
			}
		})
	}
	all.Wait()
}
