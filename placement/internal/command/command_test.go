package command_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/internal/command"
)

var pod = []string{"--namespace=n", "--pool=p", "--pod=w", "--pod-uid=u"}

// with returns the flags of a pod with more arguments.
func with(args ...string) []string { return append(append([]string{}, pod...), args...) }

func TestFlagsAreChecked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pools.yaml")
	require.NoError(t, os.WriteFile(file, []byte("pools: [{name: a, nam: b}]"), 0o600))
	type run = func(ctx context.Context, args []string, stderr io.Writer) error
	for _, tc := range []struct {
		run  run
		args []string
		want string
	}{
		{command.Agent, nil, "--namespace is required"},
		{command.Agent, pod[:3], "--pod-uid is required"},
		{command.Agent, with(), "give either --exec"},
		{command.Agent, with("--exec", "--file=/tmp", "--", "true"), "give either --exec"},
		{command.Agent, with("--file=/tmp", "true"), `unexpected argument "true"`},
		{command.Agent, with("--file=/tmp", "--ready-line=x"), "--ready-line is for --exec only"},
		{command.Agent, with("--exec"), "--exec: give -- and the program"},
		{command.Agent, with("--exec", "--capacity=-1", "--", "true"), "--capacity"},
		{command.Agent, with("--exec", "--capacity=2147483648", "--", "true"), "--capacity 2147483648: give a number from 0 to"},
		{command.Agent, with("--exec", "--pool=a/b", "--", "true"), `--pool "a/b": `},
		{command.Agent, with("--exec", "--pod=W", "--", "true"), `--pod "W": `},
		{command.Agent, with("--exec", "--pod-uid=a/b", "--", "true"), `--pod-uid "a/b": `},
		{command.Agent, with("--exec", "--namespace=a.b", "--", "true"), `--namespace "a.b": `},
		{command.Agent, with("--exec", "--lease-duration=1500ms", "--", "true"), "--lease-duration 1.5s: give whole seconds"},
		{command.Agent, with("--no-such-flag"), "see placement agent --help"},
		{command.Agent, with("-v=-1"), "-v -1"},
		{command.Agent, with("--exec", "--kubeconfig=/no/such/file", "--", "true"), "/no/such/file"},
		{command.Controller, nil, "--pool-config is required"},
		{command.Controller, []string{"--pool-config=/no/such/file"}, "/no/such/file"},
		{command.Controller, []string{"--pool-config=" + file}, "pools[0].nam"},
		{command.Controller, []string{"x"}, `unexpected argument "x"`},
	} {
		err := tc.run(t.Context(), tc.args, io.Discard)
		require.ErrorContains(t, err, tc.want, "%v", tc.args)
		assert.NotContains(t, err.Error(), "\n")
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.ErrorIs(t, command.Agent(t.Context(), []string{"--help"}, &out), command.ErrHelp)
	assert.Contains(t, out.String(), "-ready-line line")
	require.ErrorIs(t, command.Copy([]string{"--help"}, &out), command.ErrHelp)
	assert.Contains(t, out.String(), "Usage of placement copy:\n  placement copy DIRECTORY\n")
	require.ErrorIs(t, command.Controller(t.Context(), []string{"--version"}, &out), command.ErrVersion)
}

func TestCopyIsTheProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "placement")
	for range 2 { // the container may be started again
		require.NoError(t, command.Copy([]string{dir}, io.Discard))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	want, err := os.ReadFile(self)
	require.NoError(t, err)
	copied, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, copied))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestCopyNeedsADirectory(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {""}, {"--no-such-flag"}, {"a", "b"}, {filepath.Join(t.TempDir(), "missing")}} {
		err := command.Copy(args, io.Discard)
		require.Error(t, err, "%v", args)
		assert.NotContains(t, err.Error(), "\n")
	}
}
