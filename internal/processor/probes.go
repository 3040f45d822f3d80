package processor

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/internal/liveness"
)

// beat is the request that does nothing. No object has no name.
var beat = reconcile.Request{}

// addProbes makes the manager's probes tell of a controller: it is ready when it works, and live unless it hangs.
func addProbes(mgr manager.Manager, controller string) (*liveness.Loop, error) {
	loop := &liveness.Loop{}
	name := controller + "-controller"
	if err := mgr.AddHealthzCheck(name, loop.Live); err != nil {
		return nil, fmt.Errorf("adding the liveness probe of %s: %w", name, err)
	}
	if err := mgr.AddReadyzCheck(name, loop.Ready); err != nil {
		return nil, fmt.Errorf("adding the readiness probe of %s: %w", name, err)
	}
	return loop, nil
}

// probed returns a reconciler that tells the loop what it is at, and lets beats pass.
func probed(loop *liveness.Loop, do reconcile.Func) reconcile.Func {
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		if req == beat {
			loop.Beat()
			return reconcile.Result{}, nil
		}
		defer loop.Begin(item(req))()
		return do(ctx, req)
	}
}

// item is what a loop calls a request: the name of a node, or the namespace and the name of a ConfigMap.
func item(req reconcile.Request) string { return strings.TrimPrefix(req.String(), "/") }

// beats is a source of beats: the first when the controller starts.
func beats() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go wait.UntilWithContext(ctx, func(context.Context) { queue.Add(beat) }, liveness.Period)
		return nil
	})
}
