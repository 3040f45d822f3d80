package shard

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// takenPeriod is the time between two looks at an object that this shard works on and that its cache does
// not have any more.
const takenPeriod = time.Second

// lossWatcher notices that an object is taken from this shard while a reconciler works on it. The sharder
// does not do that in a hand-over, but people can delete a ring, remove labels by hand, or set onTimeout to
// Force. No controller works before its cache is filled, and this informer has that cache.
type lossWatcher struct{ of *reconciler }

// NeedLeaderElection says that it runs on every shard.
func (lossWatcher) NeedLeaderElection() bool { return false }

// Start listens to the cache until ctx ends.
func (w lossWatcher) Start(ctx context.Context) error {
	informer, err := w.of.informers.GetInformer(ctx, w.of.main)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listening to the cache of %s: %w", w.of.kind.Kind, err)
	}
	lost := make(chan client.ObjectKey)
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) { w.tell(ctx, lost, object) }})
	if err != nil {
		return fmt.Errorf("listening to the cache of %s: %w", w.of.kind.Kind, err)
	}
	var looks sync.WaitGroup
	defer looks.Wait()
	for {
		select {
		case key := <-lost:
			looks.Go(func() { w.of.endIfTaken(ctx, key) })
		case <-ctx.Done():
			_ = informer.RemoveEventHandler(registration) // both end now
			return nil
		}
	}
}

// tell tells of an object that the cache has lost, if a reconciler works on it.
func (w lossWatcher) tell(ctx context.Context, lost chan<- client.ObjectKey, object any) {
	name, err := toolscache.DeletionHandlingObjectToName(object)
	if err != nil || !w.of.gate.isBusy(name.AsNamespacedName()) {
		return
	}
	select {
	case lost <- name.AsNamespacedName():
	case <-ctx.Done():
	}
}

// endIfTaken ends the work on an object if another shard may have it. It returns when nobody works on the
// object any more, or when it is this shard's. Work on an object that was deleted goes on, unless somebody
// creates it again and another shard gets it. Most of that work ends soon, so the first look waits, too.
func (r *reconciler) endIfTaken(ctx context.Context, key client.ObjectKey) {
	timer := time.NewTimer(retryPeriod)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(takenPeriod)
		case <-ctx.Done():
			return
		}
		if !r.gate.isBusy(key) {
			return
		}
		stored := metadataOf(r.kind)
		err := r.live.Get(ctx, key, stored)
		switch {
		case err == nil && r.shard.owns(stored):
			return // the cache will have it
		case err == nil:
			r.gate.end(key, ErrTaken)
			return
		case !apierrors.IsNotFound(err):
			logf.FromContext(ctx).V(1).Info("Reading an object that is not in the cache any more failed, retrying",
				"kind", r.kind.Kind, "object", key, "error", err.Error())
		}
	}
}
