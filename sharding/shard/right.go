package shard

import (
	"context"
	"errors"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

var (
	// ErrLeaseLost means that this shard has lost the right to act: it could not renew its Lease in time,
	// or somebody else has written that it does not hold it. Other shards may have its objects. The
	// process must end and start again.
	ErrLeaseLost = errors.New("the Lease of this shard was lost")
	// ErrTaken means that an object is another shard's although this shard has not given it away:
	// somebody has deleted the ring or the object's label, the ring has onTimeout Force, or the
	// object was deleted and another shard has got one of that name. It is the cause of the end of
	// the contexts of reconcilers that work on that object.
	ErrTaken = errors.New("the object was taken from this shard")
	// ErrFenced means that a request was not sent, or cut off, because this shard has lost the right to
	// act.
	ErrFenced = errors.New("refused, as this shard may not act any more")
)

// start is when this process began to measure time.
var start = time.Now() //nolint:gochecknoglobals // a reading of the monotonic clock means nothing without another one

// sinceStart returns the time since the start of this process by the monotonic clock.
func sinceStart() time.Duration { return time.Since(start) }

// right is that of a shard to act. It begins some time after the first renewal of its Lease, see
// [right.begin], lasts for a while after the last renewal was sent, and does not come back. It is safe
// for concurrent use.
type right struct {
	// lasts is for how long after a renewal was sent.
	lasts time.Duration
	// clock returns the time, with that in which the machine is suspended, and steady without: sinceBoot
	// and sinceStart but in tests.
	clock, steady func() time.Duration

	// onEnd is called before anybody learns that the right has ended, nil for nothing. Set it before the
	// right can end.
	onEnd func()

	held         chan struct{} // closed by the first renewal
	begun, ended chan struct{} // closed when it begins and ends
	renewals     chan struct{} // tells that until has changed

	mu sync.Mutex
	// until is when it ends by the clock. It is zero if no renewal is stored yet.
	until     time.Duration
	suspended time.Duration // at least, when the next renewal is sent
	hasBegun  bool
	isOver    bool
}

func newRight(lasts time.Duration) *right {
	return newRightBy(lasts, sinceBoot, sinceStart)
}

func newRightBy(lasts time.Duration, clock, steady func() time.Duration) *right {
	return &right{
		lasts: lasts, clock: clock, steady: steady, suspended: clock() - steady(),
		held: make(chan struct{}), begun: make(chan struct{}), ended: make(chan struct{}), renewals: make(chan struct{}, 1),
	}
}

// renewed notes that a renewal is stored, and when it was sent by the steady clock. It reports whether
// the right should be renewed again at once: the machine was suspended since the last time, and nobody
// knows whether before this renewal was sent or after, so that it counts for less.
func (r *right) renewed(sent time.Duration) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checkLocked() // a renewal that comes too late changes nothing
	if r.isOver {
		return false
	}
	if r.until == 0 {
		close(r.held)
	}
	r.until = sent + r.suspended + r.lasts
	suspended := r.clock() - r.steady()
	again = suspended-r.suspended > r.lasts/10
	r.suspended = suspended
	select {
	case r.renewals <- struct{}{}:
	default:
	}
	return again
}

// under returns base with ErrLeaseLost as the cause when the right ends, for what runs in a
// manager, which would end that without a cause. All its contexts end together. Call it before the
// right can end.
func (r *right) under(base manager.BaseContextFunc) manager.BaseContextFunc {
	all := sync.OnceValue(func() context.Context {
		ctx := context.Background()
		if base != nil {
			ctx = base()
		}
		ctx, end := context.WithCancelCause(ctx)
		r.onEnd = func() { end(ErrLeaseLost) }
		return ctx
	})
	return all
}

// begin lets the shard act. Its Lease must have been renewed.
func (r *right) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hasBegun {
		r.hasBegun = true
		close(r.begun)
	}
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
		if r.onEnd != nil {
			r.onEnd()
		}
		close(r.ended)
	}
}

func (r *right) checkLocked() {
	if r.until != 0 && r.clock() >= r.until {
		r.endLocked()
	}
}

// isLost reports whether the right is over by now.
func (r *right) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checkLocked()
	return r.isOver
}

// left returns for how long the right lasts without another renewal.
func (r *right) left() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until - r.clock()
}

// watch ends the right when it is over. It returns then, or when ctx ends.
func (r *right) watch(ctx context.Context) {
	select {
	case <-r.held:
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
	go func() {
		select {
		case <-r.ended:
			cancel(cause)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
