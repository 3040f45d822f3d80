package command

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The exit codes other than 0. Errors that occur before a command begins have CodeUsage.
const (
	CodeError = 1
	CodeUsage = 2
)

// ErrReported has the exit code CodeError and no message: the command has already printed its result,
// and the code conveys it to scripts.
var ErrReported = errors.New("reported")

// coded is an error with an exit code of its own.
type coded struct {
	error
	code int
}

// Unwrap implements [errors.Unwrap].
func (c coded) Unwrap() error { return c.error }

// UsageError gives an error the exit code CodeUsage. Use it for a mistake in the command line that a
// command finds after it has begun.
func UsageError(err error) error { return coded{err, CodeUsage} }

// begun is an error of a command that has begun.
type begun struct{ error }

// Unwrap implements [errors.Unwrap].
func (b begun) Unwrap() error { return b.error }

// markBegun makes a command return errors of type begun.
func markBegun(cmd *cobra.Command) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := run(cmd, args); err != nil {
			return begun{err}
		}
		return nil
	}
}

func codeOf(err error) int {
	if err == nil {
		return 0
	}
	if c, ok := errors.AsType[coded](err); ok {
		return c.code
	}
	if _, ok := errors.AsType[begun](err); ok || errors.Is(err, ErrReported) {
		return CodeError
	}
	return CodeUsage
}

// Explain adds advice to an error of the API server or of the connection to it.
func (p *Plugin) Explain(err error) error {
	_, isNetwork := errors.AsType[*net.OpError](err)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\n%s", err, p.Rights)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w\nThe API server refuses these credentials: check the kubeconfig, or --context", err)
	case isNetwork || errors.Is(err, context.DeadlineExceeded): // of --request-timeout
		return fmt.Errorf("%w\nThe API server does not answer: check that it runs, and that --kubeconfig or --context names it", err)
	}
	return err
}
