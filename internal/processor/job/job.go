// Package job contains what the controllers of a processor share: each works on nodes by name,
// within a time limit, under the nodes' locks.
package job

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/internal/nodelock"
)

const (
	// Failed nodes are retried after minBackoff, doubling up to maxBackoff.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second

	// contendedRetry and contendedPause are the longest and the shortest delay before a node whose
	// lock another process holds is retried. The holder may release the lock before it expires.
	contendedRetry = time.Second
	contendedPause = 100 * time.Millisecond

	// nextTurn is the delay that moves a node whose turn is over behind the waiting nodes.
	nextTurn = time.Millisecond

	// Timeout ends work that hangs, so that it cannot block a worker forever. The API server ends a
	// request after a minute (--request-timeout).
	Timeout = 5 * time.Minute
)

// ErrTurnOver means that a node has more transactions than one turn may apply.
var ErrTurnOver = errors.New("the node has more transactions than are applied in one turn")

// Requests is the queue of a controller.
type Requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// NewController returns a controller whose requests are the names of nodes.
func NewController(mgr manager.Manager, name string, workers int, do reconcile.Func) (controller.Controller, error) {
	c, err := controller.New(name, mgr, controller.Options{
		MaxConcurrentReconciles: workers,
		NeedLeaderElection:      new(false),
		SkipNameValidation:      new(true), // more than one processor may run in one process
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
		ReconciliationTimeout:   Timeout,
		Reconciler:              do,
		LogConstructor: func(req *reconcile.Request) logr.Logger {
			if req == nil {
				return mgr.GetLogger()
			}
			return mgr.GetLogger().WithValues("node", req.Name)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("creating the controller %q: %w", name, err)
	}
	return c, addReadiness(mgr, name+"-controller", c)
}

// addReadiness adds a readiness check that passes once a controller has started.
func addReadiness(mgr manager.Manager, name string, c controller.Controller) error {
	var started atomic.Bool
	err := c.Watch(source.Func(func(context.Context, Requests) error {
		started.Store(true)
		return nil
	}))
	if err != nil {
		return fmt.Errorf("watching the start of %s: %w", name, err)
	}
	err = mgr.AddReadyzCheck(name, func(*http.Request) error {
		if !started.Load() {
			return errors.New("not started yet")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the readiness probe of %s: %w", name, err)
	}
	return nil
}

// Request returns the request for a node.
func Request(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
}

// Add enqueues a node with a priority.
func Add(work Requests, node string, priority int) {
	if ordered, ok := work.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: new(priority)}, Request(node))
		return
	}
	work.Add(Request(node))
}

// UnderLock calls work under the lock of a node, or requeues the node if another process holds the
// lock.
func UnderLock(ctx context.Context, locks *nodelock.Locker, node string, work func(context.Context) error) (reconcile.Result, error) {
	err := locks.Do(ctx, node, work)
	switch {
	case errors.Is(err, nodelock.ErrHeld):
		return reconcile.Result{RequeueAfter: min(contendedRetry, max(contendedPause, locks.HeldFor(node)))}, nil
	case errors.Is(err, ErrTurnOver):
		return reconcile.Result{RequeueAfter: nextTurn, Priority: new(0)}, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return reconcile.Result{}, nil // shutdown: the next processor continues
	}
	return reconcile.Result{}, err
}
