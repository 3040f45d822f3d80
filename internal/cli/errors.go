package cli

import (
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// errTold says that a command has found what its exit code is to tell scripts, and has said all
// there is to say.
var errTold = errors.New("told")

// The exit codes besides 0.
const (
	codeFound = 1
	codeError = 1
	// codeTrouble is for errors of commands that tell something by codeFound, as kubectl diff has
	// it.
	codeTrouble = 2
)

// trouble is the error of a command that tells something by its exit code.
type trouble struct{ error }

// Unwrap returns what went wrong.
func (t trouble) Unwrap() error { return t.error }

// telling marks the errors of such a command.
func telling(err error) error {
	if err == nil || errors.Is(err, errTold) {
		return err
	}
	return trouble{err}
}

func codeOf(err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, errTold) {
		return codeFound
	}
	if _, ok := errors.AsType[trouble](err); ok {
		return codeTrouble
	}
	return codeError
}

// withAdvice adds what to do to errors that come from outside.
func withAdvice(err error) error {
	_, isNetwork := errors.AsType[*net.OpError](err)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\nReading needs the rights of nodekeeper-viewer, writing those of nodekeeper-editor: see deploy/users", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w\nThe API server refuses these credentials: check the kubeconfig, or --context", err)
	case isNetwork:
		return fmt.Errorf("%w\nThe API server does not answer: check that it runs, and that --kubeconfig or --context names it", err)
	}
	return err
}
