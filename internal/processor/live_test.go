package processor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/internal/liveness"
	"nodekeeper.dev/internal/processor"
)

// checks is a manager that takes checks only.
type checks struct {
	manager.Manager

	live, ready healthz.Checker
	stop        func()
}

func (c *checks) AddHealthzCheck(_ string, check healthz.Checker) error { c.live = check; return nil }

func (c *checks) AddReadyzCheck(_ string, check healthz.Checker) error { c.ready = check; return nil }

// controlled runs a controller with two workers in a bubble, probed as those of the processor are, on one node.
func controlled(t *testing.T, do reconcile.Func) *checks {
	t.Helper()
	c := &checks{}
	loop, err := processor.AddProbes(c, "node")
	require.NoError(t, err)
	nodes, err := controller.NewUnmanaged("node", controller.Options{
		MaxConcurrentReconciles: 2, SkipNameValidation: new(true), UsePriorityQueue: new(false), CacheSyncTimeout: time.Minute,
		Reconciler:     processor.Probed(loop, do),
		LogConstructor: func(*reconcile.Request) logr.Logger { return logr.Discard() },
	})
	require.NoError(t, err)
	require.NoError(t, nodes.Watch(processor.Beats()))
	require.NoError(t, nodes.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(request("node-1"))
		return nil
	})))
	require.Error(t, c.ready(nil), "it does not run yet")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- nodes.Start(ctx) }()
	synctest.Wait()
	c.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(c.stop)
	return c
}

func request(node string) reconcile.Request {
	var req reconcile.Request
	req.Name = node
	return req
}

func TestControllerIsLiveHoweverItsWorkFails(t *testing.T) {
	for name, do := range map[string]reconcile.Func{
		"nothing to do": func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil },
		"an API server that is away, or a node that backs off": func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, errors.New("refused")
		},
		"an API server that hardly answers": func(context.Context, reconcile.Request) (reconcile.Result, error) {
			time.Sleep(time.Minute)
			return reconcile.Result{}, errors.New("timeout")
		},
		"a lock that another holds": func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{RequeueAfter: time.Second}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := controlled(t, do)
				require.NoError(t, c.ready(nil))
				for range 3 * 60 {
					time.Sleep(time.Minute)
					require.NoError(t, c.live(nil))
				}
			})
		})
	}
}

func TestControllerWithAWorkerThatHangsIsNotLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		c := controlled(t, func(context.Context, reconcile.Request) (reconcile.Result, error) {
			<-until
			return reconcile.Result{}, nil
		})
		time.Sleep(liveness.Limit)
		require.NoError(t, c.live(nil))
		time.Sleep(time.Second)
		require.EqualError(t, c.live(nil), "no progress with node-1 for 5m1s")
		require.NoError(t, c.ready(nil), "other nodes are worked on")
		close(until)
		synctest.Wait()
		assert.NoError(t, c.live(nil))
	})
}

func TestControllerThatTakesNothingFromItsQueueIsNotLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlled(t, func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
		c.stop()
		time.Sleep(liveness.Limit + liveness.Period)
		require.ErrorContains(t, c.live(nil), "nothing has moved for 5m")
	})
}
