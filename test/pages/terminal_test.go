package pages_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
)

const (
	// ownerEnv makes the test binary a process that opens a shell, and never ends it.
	ownerEnv = "PAGES_TEST_OWNER"
	// patience is for a machine that is busy.
	patience = 3 * time.Minute
	// lasting starts a program in the background, which has a pipe in the directory of the shell open
	// for writing.
	lasting = "sleep 1000 >pipe &"
)

func TestShellKeepsWhatWasTypedBefore(t *testing.T) {
	dir := t.TempDir()
	s := pages.NewShell(t, dir, "SETTING=given")
	for _, tc := range []struct {
		script, want string
		isWrong      bool
	}{
		{"PATH=$PWD/none:$PATH", "", false},
		{`echo "${PATH%%:*}"; echo error >&2`, dir + "/none\nerror\n", false},
		{"echo no && false", "no\n", true},
		{"echo \\\n  \"$SETTING$MAKEFLAGS\"", "given\n", false},
		{"cat <<END\na\nEND", "a\n", false},
		{"for i in 1 2; do\n  echo $i\ndone", "1\n2\n", false},
		{"read -r line", "", true},
		{"count() { echo \"$# words\"; }", "", false},
		{"count a b", "2 words\n", false},
		{"for", "", true},
		{"mkfifo gate; (read -r line <gate; echo late) & echo now", "now\n", false},
		{"echo >gate; wait", "", false},
	} {
		t.Setenv("MAKEFLAGS", "-n")
		out, err := s.Run(t.Context(), tc.script)
		assert.Equal(t, tc.isWrong, err != nil, tc.script)
		if tc.script != "for" { // the words are those of bash
			assert.Equal(t, tc.want, out, tc.script)
		}
	}
	printed, err := s.Printed()
	require.NoError(t, err)
	assert.Contains(t, printed, "now\nlate\n", "a program in the background prints later")
}

func TestShellDoesNotWaitLongerThanItsContext(t *testing.T) {
	s := pages.NewShell(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Run(ctx, "sleep 1000")
	require.ErrorIs(t, err, context.Canceled)
}

func TestNothingOutlivesTheTestOfAShell(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	var opened *os.File
	t.Run("the test", func(t *testing.T) {
		_, err := pages.NewShell(t, dir).Run(t.Context(), lasting)
		require.NoError(t, err)
		opened, err = os.Open(pipe) // the program waits for that
		require.NoError(t, err)
	})
	hasEnded(t, opened)
}

func TestNothingOutlivesAnOwnerThatIsKilled(t *testing.T) {
	if os.Getenv(ownerEnv) != "" {
		s := pages.NewShell(t, os.Getenv(ownerEnv))
		_, err := s.Run(t.Context(), lasting+" sleep 1000")
		require.NoError(t, err)
	}
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	owner := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	owner.Env = append(os.Environ(), ownerEnv+"="+dir, "TMPDIR="+t.TempDir())
	require.NoError(t, owner.Start())
	opened, err := os.Open(pipe) // returns when the program has opened it, too
	require.NoError(t, err)
	require.NoError(t, owner.Process.Kill())
	require.Error(t, owner.Wait())
	hasEnded(t, opened)
}

// hasEnded waits until no program has the pipe open for writing.
func hasEnded(t *testing.T, opened *os.File) {
	t.Helper()
	require.NoError(t, opened.SetReadDeadline(time.Now().Add(patience)))
	_, err := io.ReadAll(opened)
	require.NoError(t, err, "the program in the background goes on")
	require.NoError(t, opened.Close())
}
