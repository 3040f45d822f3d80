package cli

import (
	"context"
	"errors"
	"io"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// errInterrupted is the error of input that was interrupted while a command waited for it.
var errInterrupted = errors.New("interrupted")

// interruptible is an input whose reads return once done is closed: a terminal or a pipe may never
// deliver anything.
type interruptible struct {
	in   io.Reader
	done <-chan struct{}
}

// interruptibleBy returns streams whose input is interrupted when ctx ends.
func interruptibleBy(ctx context.Context, streams genericiooptions.IOStreams) genericiooptions.IOStreams {
	streams.In = &interruptible{in: streams.In, done: ctx.Done()}
	return streams
}

// Read implements [io.Reader]. A read that was interrupted goes on until the process ends.
func (i *interruptible) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	buffer, read := make([]byte, len(p)), make(chan result, 1)
	go func() {
		n, err := i.in.Read(buffer)
		read <- result{n, err}
	}()
	select {
	case <-i.done:
		return 0, errInterrupted
	case r := <-read:
		return copy(p, buffer[:r.n]), r.err
	}
}
