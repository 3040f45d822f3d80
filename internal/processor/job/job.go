// Package job is what the controllers of a processor have in common: each works on nodes by their
// names, with a bound on time, under the nodes' locks.
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
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/internal/nodelock"
)

const (
	// A node whose work fails is retried after minBackoff, doubling up to maxBackoff.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second

	// contendedRetry is the longest time between two attempts at a lock that another process holds:
	// it may be released before its time. contendedPause is the shortest.
	contendedRetry = time.Second
	contendedPause = 100 * time.Millisecond

	// nextTurn is when a node that has had its turn is behind those that wait.
	nextTurn = time.Millisecond

	// Timeout ends work that hangs. The API server ends a request after a minute (its
	// --request-timeout), so no worker is lost for good.
	Timeout = 5 * time.Minute
)

// ErrTurnOver means that a node has more work than is done in one turn.
var ErrTurnOver = errors.New("the node has more transactions than are applied in one turn")

// Requests are the queue of a controller.
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
		return nil, fmt.Errorf("making the controller %q: %w", name, err)
	}
	return c, addReadiness(mgr, name+"-controller", c)
}

// addReadiness makes the manager's readiness probe say whether a controller has started.
func addReadiness(mgr manager.Manager, name string, c controller.Controller) error {
	var started atomic.Bool
	err := c.Watch(source.Func(func(context.Context, Requests) error {
		started.Store(true)
		return nil
	}))
	if err != nil {
		return fmt.Errorf("watching over the start of %s: %w", name, err)
	}
	err = mgr.AddReadyzCheck(name, func(*http.Request) error {
		if !started.Load() {
			return errors.New("it does not run yet")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the readiness probe of %s: %w", name, err)
	}
	return nil
}

// Request returns the request of a node.
func Request(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
}

// UnderLock does work for a node under its lock, or requeues the node if another process holds the
// lock.
func UnderLock(ctx context.Context, locks *nodelock.Locker, node string, work func(context.Context) error) (reconcile.Result, error) {
	err := locks.Do(ctx, node, work)
	switch {
	case errors.Is(err, nodelock.ErrHeld):
		return reconcile.Result{RequeueAfter: min(contendedRetry, max(contendedPause, locks.HeldFor(node)))}, nil
	case errors.Is(err, ErrTurnOver):
		return reconcile.Result{RequeueAfter: nextTurn, Priority: new(0)}, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return reconcile.Result{}, nil // a shutdown: what is left is for the next processor
	}
	return reconcile.Result{}, err
}
