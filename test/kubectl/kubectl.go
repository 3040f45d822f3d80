// Package kubectl runs kubectl with a plugin of this repository, and compares the output with
// recorded sessions.
package kubectl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

// timeout bounds a command. A busy machine must not make a test fail.
const timeout = 3 * time.Minute

// User runs commands at a shell.
type User struct {
	T *testing.T
	// Plugin is the first argument of kubectl.
	Plugin string
	// Kubeconfig is the file that commands use.
	Kubeconfig string
	// Path is $PATH, which includes the plugin.
	Path string
	// program is the path of the plugin.
	program string
	// Flags follow the arguments of each command of the plugin.
	Flags []string
}

// NewUser returns a user of the plugin. It fails the test if there is no kubectl.
func NewUser(t *testing.T, plugin, kubeconfig string) *User {
	t.Helper()
	controlplane.NeedKubectl(t)
	program, err := programs.Path("kubectl-" + plugin)
	require.NoError(t, err)
	path := filepath.Dir(program) + string(os.PathListSeparator) + os.Getenv("PATH")
	return &User{T: t, Plugin: plugin, Kubeconfig: kubeconfig, Path: path, program: program}
}

// Result is the output of a command and its exit code.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a command of the plugin with this standard input. It starts the plugin as kubectl does,
// with the arguments that follow its name, because kubectl takes longer to find the plugin than
// most commands take to run. Shell types commands as users do.
func (u *User) Run(stdin string, args ...string) Result {
	u.T.Helper()
	ctx, cancel := context.WithTimeout(u.T.Context(), timeout)
	defer cancel()
	cmd := u.Command(ctx, u.program, append(slices.Clone(args), u.Flags...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	if _, isExit := errors.AsType[*exec.ExitError](err); !isExit {
		require.NoError(u.T, err)
	}
	return Result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// Must returns the output of a command of the plugin that must succeed.
func (u *User) Must(args ...string) string {
	u.T.Helper()
	r := u.Run("", args...)
	require.Zero(u.T, r.Code, "kubectl %s %s: %s%s", u.Plugin, strings.Join(args, " "), r.Stdout, r.Stderr)
	return r.Stdout
}

// Fails returns the message of a command of the plugin that must fail with this exit code.
func (u *User) Fails(code int, args ...string) string {
	u.T.Helper()
	r := u.Run("", args...)
	require.Equal(u.T, code, r.Code, "kubectl %s %s: %s%s", u.Plugin, strings.Join(args, " "), r.Stdout, r.Stderr)
	require.Contains(u.T, r.Stderr, "error: ")
	return r.Stderr
}

// Completions returns the completions of a command line of the plugin. Script is the directory of the
// script that kubectl runs for them.
func (u *User) Completions(script, line string) []string {
	u.T.Helper()
	ctx, cancel := context.WithTimeout(u.T.Context(), timeout)
	defer cancel()
	cmd := u.Command(ctx, "kubectl", append([]string{"__complete", u.Plugin}, strings.Split(line, " ")...)...)
	cmd.Env = append(cmd.Env, "PATH="+script+string(os.PathListSeparator)+u.Path)
	out, err := cmd.Output()
	require.NoError(u.T, err, line)
	var completions []string
	for printed := range strings.Lines(string(out)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(printed), "\t"); name != "" && !strings.HasPrefix(name, ":") {
			completions = append(completions, name)
		}
	}
	return completions
}

// Shell runs a command line in a shell and returns its output and exit code.
func (u *User) Shell(dir, stdin, line string) (output string, code int) {
	u.T.Helper()
	ctx, cancel := context.WithTimeout(u.T.Context(), timeout)
	defer cancel()
	cmd := u.Command(ctx, "/bin/sh", "-c", line)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	printed, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		require.NoError(u.T, err)
	}
	return string(printed), cmd.ProcessState.ExitCode()
}

// Command returns a command in the environment of the user.
func (u *User) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path := name
	if name == "kubectl" {
		var err error
		path, err = exec.LookPath(name)
		require.NoError(u.T, err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "PATH="+u.Path, "KUBECONFIG="+u.Kubeconfig, "HOME="+u.T.TempDir(), "TZ=UTC")
	return cmd
}
