package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"nodekeeper.dev/internal/daemon/memory"
	"nodekeeper.dev/internal/daemon/version"
)

// Main calls run with a context that SIGTERM and SIGINT cancel, and returns the exit code of the
// program: 0, or 1 after an error, which it prints in one line.
func Main(program string, args []string, stderr io.Writer, run func(ctx context.Context, args []string, stderr io.Writer) error) int {
	memory.Save()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	out := &output{w: stderr}
	err := run(ctx, args, out)
	if errors.Is(err, ErrVersion) {
		_, err = fmt.Fprintln(os.Stdout, version.Line(program)) // requested, so it does not go to the standard error
	}
	if err == nil || errors.Is(err, ErrHelp) || errors.Is(err, errStopped) {
		return 0
	}
	out.end(fmt.Sprintf("%s: %v\n", program, err))
	return 1
}

// output is a writer that can be closed: a failed manager leaves goroutines that log for a moment,
// but the last line of a program must be the reason why it ended.
type output struct {
	mu    sync.Mutex
	w     io.Writer
	ended bool
}

// Write drops everything after the last line.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return len(p), nil
	}
	return o.w.Write(p)
}

// end writes the last line.
func (o *output) end(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	_, _ = io.WriteString(o.w, line) // there is nowhere to report an error
}
