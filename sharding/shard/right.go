package shard

import (
	"context"
	"errors"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/daemon/signal"
)

var (
	// ErrLeaseLost means that this shard has lost the right to act: it could not renew its Lease in
	// time, another client has taken the Lease, or etcd was restored from a backup. Other shards may
	// have its objects. The process must exit and start again.
	ErrLeaseLost = errors.New("the Lease of this shard was lost")
	// ErrTaken means that an object was taken from this shard, which has not released it: a user
	// has deleted the ring or the object's label, the ring has onTimeout Force, or the object was
	// deleted and another shard has a new one of that name. It is the cause with which the contexts
	// of the object's reconciles end.
	ErrTaken = errors.New("the object was taken from this shard")
	// ErrFenced means that a request was refused or aborted because this shard has lost the right
	// to act.
	ErrFenced = errors.New("refused, because this shard may no longer act")
)

// start is the reference point of sinceStart.
var start = time.Now() //nolint:gochecknoglobals // a monotonic clock reading has a meaning only relative to another one

// sinceStart returns the time since this process started, by the monotonic clock.
func sinceStart() time.Duration { return time.Since(start) }

// right is a shard's right to act. It begins some time after the first renewal of the shard's Lease
// (see [right.begin]), lasts for a fixed time after the last successful renewal was sent, and never
// returns once it has ended. It is safe for concurrent use.
type right struct {
	// duration is how long the right lasts after a renewal was sent.
	duration time.Duration
	// clock returns the time including suspension of the machine, steady the time without it. They
	// are sinceBoot and sinceStart except in tests.
	clock, steady func() time.Duration

	// onEnd, if set, is called before any waiter learns that the right has ended. Set it before the
	// right can end.
	onEnd func()

	held         chan struct{} // closed by the first renewal
	begun, ended chan struct{} // closed when the right begins and ends
	renewals     signal.Signal // receives a value when until changes

	mu sync.Mutex
	// until is when the right ends, by clock. It is zero before the first renewal.
	until     time.Duration
	suspended time.Duration // lower bound of the suspended time when the next renewal is sent
	started   bool
	over      bool
}

func newRight(duration time.Duration) *right {
	return newRightBy(duration, sinceBoot, sinceStart)
}

func newRightBy(duration time.Duration, clock, steady func() time.Duration) *right {
	return &right{
		duration: duration, clock: clock, steady: steady, suspended: clock() - steady(),
		held: make(chan struct{}), begun: make(chan struct{}), ended: make(chan struct{}), renewals: signal.New(),
	}
}

// renewed records a successful renewal and when it was sent, by the steady clock. It reports
// whether the caller should renew again at once: if the machine was suspended since the last
// renewal, it is unknown whether this one was sent before or after the suspension, so it extends
// the right by less.
func (r *right) renewed(sent time.Duration) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checkLocked() // a renewal that arrives too late changes nothing
	if r.over {
		return false
	}
	if r.until == 0 {
		close(r.held)
	}
	r.until = sent + r.suspended + r.duration
	suspended := r.clock() - r.steady()
	again = suspended-r.suspended > r.duration/10
	r.suspended = suspended
	r.renewals.Send()
	return again
}

// baseContext wraps the base context of a manager so that it ends with ErrLeaseLost as its cause
// when the right ends; the manager itself would end it without a cause. All calls return the same
// context. Call it before the right can end.
func (r *right) baseContext(base manager.BaseContextFunc) manager.BaseContextFunc {
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

// begin lets the shard act. The shard must have renewed its Lease.
func (r *right) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started {
		r.started = true
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
	if !r.over {
		r.over = true
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

// isLost reports whether the right has ended.
func (r *right) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checkLocked()
	return r.over
}

// remaining returns how long the right lasts without another renewal.
func (r *right) remaining() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until - r.clock()
}

// watch ends the right when it expires. It returns when the right or ctx ends.
func (r *right) watch(ctx context.Context) {
	select {
	case <-r.held:
	case <-ctx.Done():
		return
	}
	for !r.isLost() {
		timer := time.NewTimer(r.remaining())
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

// await waits until the shard may act. It returns ErrLeaseLost if the right has ended.
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

// bound returns a context that ends with ctx or with the right; in the latter case its cause is the
// given error.
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
