package plugin_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asking is a command that waits for input.
type asking struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *lineBuffer
}

// ask starts a command and keeps its input open.
func (e *env) ask(args ...string) *asking {
	e.t.Helper()
	a := &asking{cmd: e.Command(e.t.Context(), "kubectl", append(append([]string{"nodekeeper"}, args...), e.Flags...)...), out: &lineBuffer{}}
	a.cmd.Stdout, a.cmd.Stderr = a.out, a.out
	var err error
	a.in, err = a.cmd.StdinPipe()
	require.NoError(e.t, err)
	require.NoError(e.t, a.cmd.Start())
	return a
}

// asked waits until the command has printed its question.
func (e *env) asked(a *asking) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) { assert.Contains(c, a.out.String(), "[y/N]") }, "it asks")
}

// answer types an answer, and returns the exit code of the command.
func (e *env) answer(a *asking, text string) int {
	e.t.Helper()
	_, err := io.WriteString(a.in, text)
	require.NoError(e.t, err)
	return e.ended(a)
}

// interrupt sends Ctrl-C, and returns the exit code of the command.
func (e *env) interrupt(a *asking) int {
	e.t.Helper()
	require.NoError(e.t, a.cmd.Process.Signal(os.Interrupt))
	return e.ended(a)
}

func (e *env) ended(a *asking) int {
	e.t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = a.cmd.Wait() // the exit code is checked instead
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		_ = a.cmd.Process.Kill()
		require.FailNow(e.t, "the command does not end", a.out.String())
	}
	return a.cmd.ProcessState.ExitCode()
}

// TestInterruptedQuestionDoesNothing checks that Ctrl-C ends a question, and a command that reads
// standard input.
func TestInterruptedQuestionDoesNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	e.delete("node-1")
	for _, args := range [][]string{{"forget", "node-1"}, {"prune", "--older-than=0s"}} {
		a := e.ask(args...)
		e.asked(a)
		_, err := io.WriteString(a.in, "y") // without the end of the line
		require.NoError(t, err)
		assert.Equal(t, 1, e.interrupt(a), args)
		assert.Contains(t, a.out.String(), "aborted: interrupted", args)
		assert.Equal(t, of("node-1", "r1"), e.record(t, "node-1").Labels, args)
	}
	a := e.ask("import", "-f", "-")
	_, err := io.WriteString(a.in, strings.Repeat("# more than a pipe holds, so it reads\n", 10000))
	require.NoError(t, err)
	assert.Equal(t, 1, e.interrupt(a))
	assert.Contains(t, a.out.String(), "interrupted")
}

// TestForgetAfterTheNodeHasGone deletes an existing node while the user is asked about it. No
// watcher has recorded the deletion.
func TestForgetAfterTheNodeHasGone(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	a := e.ask("forget", "node-1")
	e.asked(a)
	assert.Contains(t, a.out.String(), "its record starts over with the labels it has")
	e.delete("node-1")
	assert.Equal(t, 1, e.answer(a, "y\n"))
	assert.Contains(t, a.out.String(), "run this again")
	require.NotNil(t, e.record(t, "node-1"))
	assert.Equal(t, of("node-1", "r1"), e.record(t, "node-1").Labels)
}
