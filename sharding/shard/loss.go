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

// takenPeriod is the interval between two live reads of an object that is being reconciled but has
// left the cache.
const takenPeriod = time.Second

// lossWatcher detects objects that are taken from this shard while a reconciler works on them. A
// hand-over never does that, but a user can delete a ring, remove labels, or set onTimeout to
// Force. It watches the informer that fills the cache, and no controller starts before that cache
// is filled.
type lossWatcher struct{ of *reconciler }

// NeedLeaderElection returns false: every shard runs its own.
func (lossWatcher) NeedLeaderElection() bool { return false }

// Start watches the cache until ctx ends.
func (w lossWatcher) Start(ctx context.Context) error {
	informer, err := w.of.informers.GetInformer(ctx, w.of.main)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watching the cache of %s: %w", w.of.kind.Kind, err)
	}
	gone := make(chan client.ObjectKey)
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) { w.enqueue(ctx, gone, object) }})
	if err != nil {
		return fmt.Errorf("watching the cache of %s: %w", w.of.kind.Kind, err)
	}
	var checks sync.WaitGroup
	defer checks.Wait()
	for {
		select {
		case key := <-gone:
			checks.Go(func() { w.of.endIfTaken(ctx, key) })
		case <-ctx.Done():
			_ = informer.RemoveEventHandler(registration) // the informer stops as well
			return nil
		}
	}
}

// enqueue sends the key of an object that has left the cache if a reconciler is working on it.
func (w lossWatcher) enqueue(ctx context.Context, gone chan<- client.ObjectKey, object any) {
	name, err := toolscache.DeletionHandlingObjectToName(object)
	if err != nil || !w.of.passages.isBusy(name.AsNamespacedName()) {
		return
	}
	select {
	case gone <- name.AsNamespacedName():
	case <-ctx.Done():
	}
}

// endIfTaken cancels the reconciles of an object if another shard may have it. It returns when no
// controller is reconciling the object, or when the object is this shard's. Reconciles of a deleted
// object continue unless the object is created again and assigned to another shard. Most of them
// end soon, so the first check waits as well.
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
		if !r.passages.isBusy(key) {
			return
		}
		stored := metadataOf(r.kind)
		err := r.live.Get(ctx, key, stored)
		switch {
		case err == nil && r.shard.owns(stored):
			return // the cache will catch up
		case err == nil:
			r.passages.end(key, ErrTaken)
			return
		case !apierrors.IsNotFound(err):
			logf.FromContext(ctx).V(1).Info("Reading an object that left the cache failed, retrying",
				"kind", r.kind.Kind, "object", key, "error", err.Error())
		}
	}
}
