package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
)

// Main calls run with a context that SIGTERM and SIGINT cancel, and returns the
// exit code of the program: 0, or 1 after an error, which it prints in one line.
func Main(program string, args []string, stderr io.Writer, run func(ctx context.Context, args []string, stderr io.Writer) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, args, stderr)
	if err == nil || errors.Is(err, ErrHelp) {
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "%s: %v\n", program, err)
	return 1
}
