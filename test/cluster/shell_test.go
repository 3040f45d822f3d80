package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

// shell is the terminal of a person, in the root of the repository. What one command puts into the
// environment is there for the next.
type shell struct {
	root string
	// environment is the file that has it.
	environment string
	scripts     string
}

func newShell(t *testing.T, scripts string) *shell {
	t.Helper()
	root, err := repository.Root()
	require.NoError(t, err)
	scripts, err = filepath.Abs(scripts)
	require.NoError(t, err)
	s := &shell{root: root, environment: filepath.Join(t.TempDir(), "environment"), scripts: scripts}
	require.NoError(t, os.WriteFile(s.environment, nil, 0o600))
	return s
}

// typing runs a script ($2) with the environment in a file ($1), and writes it back.
const typing = `. "$1"; trap 'export -p >"$1"' EXIT; eval "$2"`

// run returns all that a script prints.
func (s *shell) run(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-c", typing, "bash", s.environment, script)
	cmd.Dir = s.root
	for _, setting := range append(os.Environ(), scriptsEnv+"="+s.scripts) {
		if name, _, _ := strings.Cut(setting, "="); !strings.HasPrefix(name, "MAKE") && name != "MFLAGS" { // of the make that runs this test
			cmd.Env = append(cmd.Env, setting)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("running %q: %w", script, err)
	}
	return string(out), nil
}

func TestShellKeepsItsEnvironment(t *testing.T) {
	s := newShell(t, ".")
	for _, tc := range []struct {
		script, want string
		isWrong      bool
	}{
		{"PATH=$PWD/none:$PATH", "", false},
		{`echo "${PATH%%:*}"; echo error >&2`, s.root + "/none\nerror\n", false},
		{"echo no && false", "no\n", true},
		{"echo \\\n  \"$CLUSTER_SCRIPTS\"", s.scripts + "\n", false},
		{"cat <<END\na\nEND", "a\n", false},
	} {
		out, err := s.run(t.Context(), tc.script)
		assert.Equal(t, tc.isWrong, err != nil, tc.script)
		assert.Equal(t, tc.want, out, tc.script)
	}
}
