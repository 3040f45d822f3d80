package nodelock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/daemon/grace"
	"nodekeeper.dev/sharding/shardlease"
)

// LeaseDuration is how long a lock lasts after its last renewal, and so the delay of the nodes that
// a crashed processor was working on.
const LeaseDuration = 5 * time.Second

const (
	// renewDeadline is shorter than LeaseDuration, so that a holder that cannot renew stops before
	// another takes over, unless the response to its last renewal was late.
	renewDeadline = 3 * time.Second
	retryPeriod   = time.Second

	// releaseTimeout bounds the release of a lock at shutdown. It is short enough to release every
	// lock within the service's five seconds. A lock that is not released expires.
	releaseTimeout = 2 * time.Second

	// maxRelease bounds the release otherwise. It is generous to a busy API server, because a lock
	// that is left behind costs the next processor a LeaseDuration, but an API server that never
	// responds must not block a worker.
	maxRelease = 10 * time.Second

	// answerTimeout bounds the write that takes a lock at shutdown. Together with releaseTimeout it
	// stays within the service's five seconds.
	answerTimeout = time.Second
)

// ErrHeld means that another process, or another goroutine of this one, holds the lock.
var ErrHeld = errors.New("another process holds the lock of this node")

// Locker takes the locks of nodes for one process. It is safe for concurrent use.
type Locker struct {
	client    client.Client
	namespace string
	identity  string
	metrics   metrics

	mu sync.Mutex
	// busy holds the nodes whose lock this process holds or requests. The Lease cannot distinguish
	// two goroutines of one process, because it holds the identity of the process.
	busy map[string]bool
	// wantedSince is since when this process has waited for another's lock, by node.
	wantedSince map[string]time.Time

	// others are the locks of other processes. They may be stale: a lock is taken over only after a
	// live read that finds it unchanged.
	others shardlease.Sightings
}

// New returns a Locker. The client must read the API server itself, not a cache. The identity names
// the process in the Leases and must be unique: two processes with the same identity do not exclude
// each other, which wastes work but does not endanger data.
func New(c client.Client, namespace, identity string) *Locker {
	return &Locker{
		client: c, namespace: namespace, identity: identity, metrics: newMetrics(),
		busy: map[string]bool{}, wantedSince: map[string]time.Time{},
	}
}

// Do takes the lock of a node, calls work and releases the lock; it returns the error of work. The
// context of work is cancelled when the lock is lost. Do tries once. If another process holds the
// lock, it returns [ErrHeld] at once: while there is work for the node, call it again after
// [Locker.HeldFor], or a moment later if that is zero; when there is no more work, call
// [Locker.Forget].
func (l *Locker) Do(ctx context.Context, node string, work func(context.Context) error) error {
	wanted, err := l.begin(node)
	if err != nil {
		l.metrics.notTaken(err)
		return err
	}
	defer l.done(node)
	lock := &lease{client: l.client, namespace: l.namespace, node: node, identity: l.identity, others: &l.others}
	work = l.started(node, wanted, work)
	workErr, err := l.underLock(ctx, lock, work)
	switch {
	case errors.Is(err, errForeign):
		logf.FromContext(ctx).Info("Working without a lock: a foreign Lease has its name", "node", node)
		return work(ctx)
	case err != nil:
		l.metrics.notTaken(err)
		return err
	case !lock.held:
		return ctx.Err()
	}
	longer, stopRelease := grace.Context(ctx, releaseTimeout)
	defer stopRelease()
	releaseCtx, cancel := context.WithTimeout(longer, maxRelease)
	defer cancel()
	return errors.Join(workErr, lock.release(releaseCtx))
}

// started wraps work to record when it starts.
func (l *Locker) started(node string, wanted time.Time, work func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		l.metrics.wait.Observe(time.Since(wanted).Seconds())
		l.Forget(node)
		return work(ctx)
	}
}

// underLock calls work while the lock is held and returns its error, or the reason why the lock was
// not taken. If lock.held is false and there is no error, ctx was cancelled first.
func (l *Locker) underLock(ctx context.Context, lock *lease, work func(context.Context) error) (workErr, err error) {
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	lock.stop = stop
	done := make(chan error, 1)
	elector, err := newElector(lock, func(ctx context.Context) {
		defer stop()
		done <- work(logf.IntoContext(ctx, logf.FromContext(runCtx)))
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the lock of node %q: %w", lock.node, err)
	}
	// The elector logs every attempt; the errors here are sufficient.
	elector.Run(klog.NewContext(runCtx, logr.Discard()))
	if !lock.held {
		return nil, lock.failure
	}
	return <-done, nil // if the lock was lost, the elector returns before work does
}

// HeldFor returns how much longer another process is known to hold the lock of a node if it does
// not renew it.
func (l *Locker) HeldFor(node string) time.Duration { return l.others.Left(node, time.Now()) }

// Forget ends the wait for the lock of a node.
func (l *Locker) Forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.wantedSince, node)
}

// begin marks a node as busy and returns since when its lock is wanted.
func (l *Locker) begin(node string) (wanted time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[node] {
		return time.Time{}, ErrHeld
	}
	l.busy[node] = true
	if _, ok := l.wantedSince[node]; !ok {
		l.wantedSince[node] = time.Now()
	}
	return l.wantedSince[node], nil
}

// done marks the node as no longer busy.
func (l *Locker) done(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, node)
}

func newElector(lock *lease, lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: LeaseDuration,
		RenewDeadline: renewDeadline,
		RetryPeriod:   retryPeriod,
		Callbacks:     leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: func() {}},
	})
}
