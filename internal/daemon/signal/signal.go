// Package signal wakes up a goroutine that waits for changes.
package signal

// Signal carries at most one pending signal. Receive from it to wait for one. It must be created
// with [New]; a receive from the zero value blocks forever. It is safe for concurrent use.
type Signal chan struct{}

// New returns a Signal without a pending signal.
func New() Signal { return make(Signal, 1) }

// Send never blocks. If a signal is pending, its receiver has yet to look, and finds this change,
// too.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
