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
	// contended are the elections that another holder won. They are kept because the elector
	// counts a lease duration from when it first saw a holder, not from what the holder's
	// clock says.
	contended map[string]*election
}

// election is one node's leader election.
type election struct {
	lease   *lease
	elector *leaderelection.LeaderElector
	lead    func(context.Context) // what to do in this run while the lock is held
	begun   time.Time             // when the lock was first asked for
}

// New returns a Locker. The client must read the API server itself, not a cache. The
// identity names the process in the Leases and must be unique: two processes of one
// identity do not keep each other out (no data is at risk, only work is wasted).
func New(c client.Client, namespace, identity string) *Locker {
	return &Locker{
		client: c, namespace: namespace, identity: identity, metrics: newMetrics(),
		busy: map[string]bool{}, contended: map[string]*election{},
	}
}

// Do takes the lock of a node, calls work and releases the lock; it returns
// what work returned. The context of work is cancelled when the lock is lost. Do
// tries once: if another process holds the lock it returns [ErrHeld] at once,
// and the caller is to come again, after [LeaseDuration] at the latest, as long
// as it has work for the node, and to call [Locker.Forget] if it has none any more. The lock of a
// process that died is taken over by a Do that comes LeaseDuration after the first one.
func (l *Locker) Do(ctx context.Context, node string, work func(context.Context) error) error {
	e, err := l.take(node)
	if err != nil {
		l.metrics.notTaken(err)
		return err
	}
	defer l.done(node)
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	e.lease.begin(stop)
	done := make(chan error, 1)
	e.lead = func(ctx context.Context) {
		defer stop()
		l.metrics.wait.Observe(time.Since(e.begun).Seconds())
		done <- work(logf.IntoContext(ctx, logf.FromContext(runCtx)))
	}

	// The elector tells every attempt; what matters of it is told by the errors here.
	e.elector.Run(klog.NewContext(runCtx, logr.Discard()))
	if !e.lease.held {
		l.keep(node, e)
		l.metrics.notTaken(e.lease.failure)
		if e.lease.failure == nil {
			return ctx.Err()
		}
		return e.lease.failure
	}

	// The elector returns before work does if the lock was lost.
	workErr := <-done
	longer, stopRelease := grace.Context(ctx, releaseTimeout)
	defer stopRelease()
	releaseCtx, cancel := context.WithTimeout(longer, maxRelease)
	defer cancel()
	return errors.Join(workErr, e.lease.release(releaseCtx))
}

// Forget drops what is known of another holder of the node's lock.
func (l *Locker) Forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.contended, node)
}

// take returns the node's election, taken out of the contended ones or new, and makes the node busy.
func (l *Locker) take(node string) (*election, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[node] {
		return nil, ErrHeld
	}
	e, ok := l.contended[node]
	if !ok {
		var err error
		if e, err = l.newElection(node); err != nil {
			return nil, err
		}
	}
	delete(l.contended, node)
	l.busy[node] = true
	return e, nil
}

func (l *Locker) newElection(node string) (*election, error) {
	e := &election{lease: &lease{client: l.client, namespace: l.namespace, node: node, identity: l.identity}, begun: time.Now()}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          e.lease,
		LeaseDuration: LeaseDuration,
		RenewDeadline: renewDeadline,
		RetryPeriod:   retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { e.lead(ctx) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the lock of node %q: %w", node, err)
	}
	e.elector = elector
	return e, nil
}

// done makes the node free for this process again.
func (l *Locker) done(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, node)
}

// keep keeps an election that another holder won.
func (l *Locker) keep(node string, e *election) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contended[node] = e
}
