package cli

import (
	"errors"
	"io"
)

// errInterrupted says that the command was interrupted while it waited for input.
var errInterrupted = errors.New("interrupted")

// interruptible is input that is no longer waited for once done is closed: a terminal or a pipe may
// never say anything.
type interruptible struct {
	in   io.Reader
	done <-chan struct{}
}

// Read implements [io.Reader]. The read that is not waited for ends with the process.
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
