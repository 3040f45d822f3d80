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

	"nodekeeper.dev/internal/grace"
)

// LeaseDuration is how long after the last renewal a lock is still its
// holder's: what a processor that dies costs the nodes it was at.
const LeaseDuration = 5 * time.Second

const (
	// renewDeadline is shorter than LeaseDuration, so that a holder that cannot renew stops before another takes over.
	renewDeadline = 3 * time.Second
	retryPeriod   = time.Second

	// releaseTimeout is how long the release of a lock is tried when the service is told to end: short enough to release
	// every lock within the five seconds that it has. A lock that was not released expires.
	releaseTimeout = 2 * time.Second

	// maxRelease bounds it otherwise. A busy API server may take its time: a lock that is left behind costs whoever is next at
	// the node a LeaseDuration. One that never answers is not to keep a worker.
	maxRelease = 10 * time.Second

	// answerTimeout is how long the write that takes a lock is waited for when the service is told to end. With
	// releaseTimeout it stays within those five seconds.
	answerTimeout = time.Second
)

// ErrHeld says that another process holds the lock.
var ErrHeld = errors.New("another process holds the lock of this node")

// Locker takes the locks of nodes for one process. It is safe for concurrent use.
type Locker struct {
	client    client.Client
	namespace string
	identity  string
	metrics   metrics

	mu sync.Mutex
	// busy are the nodes whose lock this process holds or asks for. The Lease cannot keep two
	// goroutines of one process apart: it holds the identity of the process.
	busy map[string]bool
	// asked is since when locks are wanted that others have.
	asked map[string]time.Time

	others *sightings
}

// New returns a Locker. The client must read the API server itself, not a cache. The
// identity names the process in the Leases and must be unique: two processes of one
// identity do not keep each other out (no data is at risk, only work is wasted).
func New(c client.Client, namespace, identity string) *Locker {
	return &Locker{
		client: c, namespace: namespace, identity: identity, metrics: newMetrics(),
		busy: map[string]bool{}, asked: map[string]time.Time{}, others: newSightings(),
	}
}

// Do takes the lock of a node, calls work and releases the lock; it returns
// what work returned. The context of work is cancelled when the lock is lost. Do
// tries once: if another process holds the lock it returns [ErrHeld] at once,
// and the caller is to come again, after [Locker.HeldFor] or, if that is zero, a moment, as long
// as it has work for the node, and to call [Locker.Forget] if it has none any more. The lock of a
// process that died is taken over by a Do that comes LeaseDuration after the lock was first seen, see [Locker.Observe].
func (l *Locker) Do(ctx context.Context, node string, work func(context.Context) error) error {
	asked, err := l.begin(node)
	if err != nil {
		l.metrics.notTaken(err)
		return err
	}
	defer l.done(node)
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	lock := &lease{client: l.client, namespace: l.namespace, node: node, identity: l.identity, others: l.others, stop: stop}
	done := make(chan error, 1)
	elector, err := newElector(lock, func(ctx context.Context) {
		defer stop()
		l.metrics.wait.Observe(time.Since(asked).Seconds())
		l.Forget(node)
		done <- work(logf.IntoContext(ctx, logf.FromContext(runCtx)))
	})
	if err != nil {
		return fmt.Errorf("preparing the lock of node %q: %w", node, err)
	}

	// The elector tells every attempt; what matters of it is told by the errors here.
	elector.Run(klog.NewContext(runCtx, logr.Discard()))
	if !lock.held {
		l.metrics.notTaken(lock.failure)
		if lock.failure == nil {
			return ctx.Err()
		}
		return lock.failure
	}

	// The elector returns before work does if the lock was lost.
	workErr := <-done
	longer, stopRelease := grace.Context(ctx, releaseTimeout)
	defer stopRelease()
	releaseCtx, cancel := context.WithTimeout(longer, maxRelease)
	defer cancel()
	return errors.Join(workErr, lock.release(releaseCtx))
}

// HeldFor returns how much longer the lock of a node is another process's, as far as is known, if that does not renew it.
func (l *Locker) HeldFor(node string) time.Duration { return l.others.left(node) }

// Forget says that the lock of a node is not wanted any more.
func (l *Locker) Forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, node)
}

// begin makes a node busy and returns since when its lock is wanted.
func (l *Locker) begin(node string) (asked time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[node] {
		return time.Time{}, ErrHeld
	}
	l.busy[node] = true
	if _, wasAsked := l.asked[node]; !wasAsked {
		l.asked[node] = time.Now()
	}
	return l.asked[node], nil
}

// done makes the node free for this process again.
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
