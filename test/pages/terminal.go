package pages

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endTimeout is how long processes may take to end after they were killed. A busy machine needs
// some time for that.
const endTimeout = time.Minute

const (
	// typing runs the scripts that come on descriptor 3, each behind the file for its output, and
	// reports on descriptor 4 how each ended. What a script starts keeps 4 open, so that nothing
	// comes from there any more when all of it has ended.
	typing = `
while IFS= read -r -d '' -u 3 typed_output && IFS= read -r -d '' -u 3 typed_script; do
  eval "$typed_script" </dev/null >"$typed_output" 2>&1 3<&-
  echo $? >&4
done
`
	// lastWill waits for the end of its standard input, that is of its owner, and then ends its
	// process group.
	lastWill = `read -r _; kill -KILL 0`
)

// Shell is a terminal in which a test types commands. Variables, functions and programs in the
// background stay from one command to the next. It belongs to one goroutine.
type Shell struct {
	dir     string // of the output of each command
	typed   int
	scripts io.WriteCloser
	ends    *os.File
	lines   *bufio.Reader // of ends

	shell, guard *exec.Cmd
	// lifeline is never written to. The kernel closes it when this process ends, however it ends.
	lifeline io.Closer
}

// NewShell opens a shell in a directory, with more environment variables, each "KEY=value". All
// that it has started ends with the test.
func NewShell(tb testing.TB, dir string, settings ...string) *Shell {
	tb.Helper()
	s := &Shell{dir: tb.TempDir()}
	err := s.open(dir, append(withoutMake(os.Environ()), settings...))
	tb.Cleanup(func() { assert.NoError(tb, s.close(), "ending what was typed") })
	require.NoError(tb, err, "opening a shell")
	return s
}

// withoutMake removes the settings of the make that runs the test.
func withoutMake(settings []string) []string {
	var all []string
	for _, setting := range settings {
		if name, _, _ := strings.Cut(setting, "="); !strings.HasPrefix(name, "MAKE") && name != "MFLAGS" {
			all = append(all, setting)
		}
	}
	return all
}

func (s *Shell) open(dir string, env []string) error {
	scripts, typed, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = scripts.Close() }() // the shell has it
	s.scripts = typed
	ends, said, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = said.Close() }() // the shell has it
	s.ends, s.lines = ends, bufio.NewReader(ends)

	shell := exec.Command("bash", "-c", typing) //nolint:noctx // it is ended by the guard
	shell.Dir, shell.Env, shell.ExtraFiles = dir, env, []*os.File{scripts, said}
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := shell.Start(); err != nil {
		return err
	}
	s.shell = shell
	guard := exec.Command("bash", "-c", lastWill) //nolint:noctx // it ends with its standard input
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: shell.Process.Pid}
	if s.lifeline, err = guard.StdinPipe(); err != nil {
		return err
	}
	if err := guard.Start(); err != nil {
		return err
	}
	s.guard = guard
	return nil
}

// Run types a script, and returns all that it prints before it ends, which has an end of its own if
// the script starts programs in the background. If the context ends first, the shell is of no more
// use.
func (s *Shell) Run(ctx context.Context, script string) (output string, err error) {
	s.typed++
	file := s.output(s.typed)
	if _, err := io.WriteString(s.scripts, file+"\x00"+script+"\x00"); err != nil {
		return "", fmt.Errorf("typing %q: %w", script, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.ends.SetReadDeadline(time.Now()) })
	defer stop()
	code, err := s.lines.ReadString('\n')
	if err != nil {
		err = fmt.Errorf("waiting for the end of %q: %w", script, cmp.Or(ctx.Err(), err))
	} else if code != "0\n" {
		err = fmt.Errorf("%q ended with exit code %s", script, strings.TrimSpace(code))
	}
	printed, readErr := os.ReadFile(file)
	return string(printed), errors.Join(err, readErr)
}

// Printed returns what all commands have printed so far, with the programs in the background.
func (s *Shell) Printed() (string, error) {
	var all strings.Builder
	for i := range s.typed {
		printed, err := os.ReadFile(s.output(i + 1))
		if err != nil {
			return "", fmt.Errorf("reading what was printed: %w", err)
		}
		all.Write(printed)
	}
	return all.String(), nil
}

func (s *Shell) output(command int) string { return filepath.Join(s.dir, strconv.Itoa(command)) }

// close ends the shell and all that it has started. It returns an error if something has left the
// process group and goes on.
func (s *Shell) close() error {
	if s.scripts == nil {
		return nil
	}
	if s.guard == nil { // the shell ends by itself, as no commands come
		return errors.Join(s.scripts.Close(), s.ends.Close())
	}
	err := s.lifeline.Close()
	_ = s.guard.Wait() // it has killed itself, too
	_ = s.shell.Wait()
	err = errors.Join(err, s.scripts.Close(), s.ends.SetReadDeadline(time.Now().Add(endTimeout)))
	if _, readErr := io.Copy(io.Discard, s.lines); readErr != nil {
		err = errors.Join(err, fmt.Errorf("waiting until all that was started has ended: %w", readErr))
	}
	return errors.Join(err, s.ends.Close())
}
