package shard

import (
	"context"
	"errors"
	"sync"
	"time"
)

var (
	// ErrLeaseLost means that this shard has lost the right to act: it could not renew its Lease in time,
	// or somebody else has written that it does not hold it. Other shards may have its objects. The
	// process must end and start again.
	ErrLeaseLost = errors.New("the Lease of this shard was lost")
	// ErrFenced means that a request was not sent, or cut off, because this shard has lost the right to
	// act.
	ErrFenced = errors.New("refused, as this shard may not act any more")
)

// start is when this process began to measure time.
var start = time.Now() //nolint:gochecknoglobals // a reading of the monotonic clock means nothing without another one

// sinceStart returns the time since the start of this process by the monotonic clock.
func sinceStart() time.Duration { return time.Since(start) }

// right is that of a shard to act: it begins with the first renewal of its Lease, lasts for a while
// after the last renewal was sent, and does not come back. It is safe for concurrent use.
type right struct {
	// lasts is for how long after a renewal was sent.
	lasts time.Duration

	begun, ended chan struct{} // closed when it begins and ends
	renewals     chan struct{} // tells that until has changed

	mu sync.Mutex
	// until is when it ends, see sinceBoot. It is zero if it has not begun.
	until time.Duration
	// suspended is for how long the machine has been suspended, at least, when the next renewal is sent.
	suspended time.Duration
	isOver    bool
}

func newRight(lasts time.Duration) *right {
	return &right{
		lasts: lasts, begun: make(chan struct{}), ended: make(chan struct{}), renewals: make(chan struct{}, 1),
		suspended: sinceBoot() - sinceStart(),
	}
}

// renewed notes that a renewal is stored, and when it was sent. It reports whether the right should be
// renewed again at once: the machine was suspended since the last time, perhaps before this renewal was
// sent, and perhaps after.
func (r *right) renewed(sent time.Time) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isOver {
		return false
	}
	if r.until == 0 {
		close(r.begun)
	}
	r.until = sent.Sub(start) + r.suspended + r.lasts
	suspended := sinceBoot() - sinceStart()
	again = suspended-r.suspended > r.lasts/10
	r.suspended = suspended
	select {
	case r.renewals <- struct{}{}:
	default:
	}
	return again
}

// end ends the right.
func (r *right) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked()
}

func (r *right) endLocked() {
	if !r.isOver {
		r.isOver = true
		close(r.ended)
	}
}

// isLost reports whether the right is over by now.
func (r *right) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until != 0 && sinceBoot() >= r.until {
		r.endLocked()
	}
	return r.isOver
}

// left returns for how long the right lasts without another renewal.
func (r *right) left() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until - sinceBoot()
}

// watch ends the right when it is over. It returns then, or when ctx ends.
func (r *right) watch(ctx context.Context) {
	select {
	case <-r.begun:
	case <-ctx.Done():
		return
	}
	for !r.isLost() {
		timer := time.NewTimer(r.left())
		select {
		case <-timer.C:
		case <-r.renewals:
		case <-r.ended:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// await returns when the shard may act, ErrLeaseLost if it may not any more.
func (r *right) await(ctx context.Context) error {
	select {
	case <-r.begun:
	case <-r.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.isLost() {
		return ErrLeaseLost
	}
	return nil
}

// bound returns a context that ends with ctx and with the right, in which case its cause is the error.
func (r *right) bound(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		select {
		case <-r.ended:
			cancel(cause)
		case <-stopped:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		close(stopped)
		cancel(nil)
	})
}
