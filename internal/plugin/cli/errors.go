package cli

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// errTold says that a command has found what its exit code is to tell scripts, and has said all
// there is to say.
var errTold = errors.New("told")

// The exit codes besides 0.
const (
	codeFound = 1
	codeError = 1
	// codeTrouble is for a command line that is wrong, and for errors of commands that tell
	// something by codeFound, as kubectl diff has it.
	codeTrouble = 2
)

// trouble is an error with the exit code codeTrouble.
type trouble struct{ error }

// Unwrap returns what went wrong.
func (t trouble) Unwrap() error { return t.error }

// begun is the error of a command that has begun. An error from before that is one of the command
// line.
type begun struct{ error }

// Unwrap returns what went wrong.
func (b begun) Unwrap() error { return b.error }

// marksBegin makes a command mark its errors as those of a command that has begun.
func marksBegin(cmd *cobra.Command) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := run(cmd, args); err != nil {
			return begun{err}
		}
		return nil
	}
}

// misused marks an error of a command that has begun as one of the command line.
func misused(err error) error { return trouble{err} }

// telling marks the errors of a command that tells something by codeFound.
func telling(err error) error {
	if err == nil || errors.Is(err, errTold) {
		return err
	}
	return trouble{err}
}

// ringsError is an error of a command about rings, which takes other rights than the rest.
type ringsError struct{ error }

// Unwrap returns what went wrong.
func (o ringsError) Unwrap() error { return o.error }

func codeOf(err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, errTold) {
		return codeFound
	}
	_, isTrouble := errors.AsType[trouble](err)
	if _, hasBegun := errors.AsType[begun](err); isTrouble || !hasBegun {
		return codeTrouble
	}
	return codeError
}

// withAdvice adds what to do to errors that come from outside.
func withAdvice(err error) error {
	_, isNetwork := errors.AsType[*net.OpError](err)
	_, isOfRings := errors.AsType[ringsError](err)
	switch {
	case isOfRings && apierrors.IsForbidden(err):
		return fmt.Errorf("%w\nLooking at rings needs get and list of clusterrings.sharding.nodekeeper.dev, list of leases in the namespace of the shards, and get of the object", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\nReading needs the rights of nodekeeper-viewer, writing those of nodekeeper-editor: see deploy/users", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w\nThe API server refuses these credentials: check the kubeconfig, or --context", err)
	case isNetwork || errors.Is(err, context.DeadlineExceeded): // of --request-timeout
		return fmt.Errorf("%w\nThe API server does not answer: check that it runs, and that --kubeconfig or --context names it", err)
	}
	return err
}
