package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// TestEveryProgramTellsItsVersion: make stamps what it builds.
func TestEveryProgramTellsItsVersion(t *testing.T) {
	t.Parallel()
	path, err := programs.Path("watcher")
	require.NoError(t, err)
	all, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	count := 0
	for _, program := range all {
		if program.IsDir() || strings.HasPrefix(program.Name(), "example-") {
			continue // what others built: the control plane, images; or for reading
		}
		name := program.Name()
		count++
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(path), name), "--version")
		cmd.Stderr = &stderr
		stdout, err := cmd.Output()
		require.NoError(t, err, "%s: %s", name, &stderr)
		assert.Empty(t, stderr.String())
		assert.Regexp(t, `^`+name+` \S+ \(commit [0-9a-f]{40}, `+runtime.Version()+`\)\n$`, string(stdout))
	}
	assert.GreaterOrEqual(t, count, 2)
}
