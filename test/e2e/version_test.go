package e2e_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/repository"
)

// TestEveryProgramPrintsItsVersion checks that make stamps the programs it builds. It only runs
// programs in bin that are built from a directory cmd: the demo and other tools also write files
// there.
func TestEveryProgramPrintsItsVersion(t *testing.T) {
	t.Parallel()
	root, err := repository.Root()
	require.NoError(t, err)
	count := 0
	for _, pattern := range []string{"cmd/*", "*/cmd/*"} {
		sources, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, source := range sources {
			name := filepath.Base(source)
			if strings.HasPrefix(name, "example-") {
				continue // an example is for reading, and has no version
			}
			count++
			path, err := programs.Path(name)
			require.NoError(t, err)
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), path, "--version")
			cmd.Stderr = &stderr
			stdout, err := cmd.Output()
			require.NoError(t, err, "%s: %s", name, &stderr)
			assert.Empty(t, stderr.String())
			assert.Regexp(t, `^`+name+` \S+ \(commit [0-9a-f]{40}, `+runtime.Version()+`\)\n$`, string(stdout))
		}
	}
	assert.GreaterOrEqual(t, count, 6)
}
