package shard

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// takenPeriod is the time between two looks at an object that this shard works on and that its cache does
// not have any more.
const takenPeriod = time.Second

// takings notices that an object is taken from this shard while a reconciler works on it. The sharder does
// not do that in a hand-over, but people can delete a ring, remove labels by hand, or set onTimeout to Force.
type takings struct{ of *reconciler }

// NeedLeaderElection says that it runs on every shard.
func (takings) NeedLeaderElection() bool { return false }

// Start listens to the cache until ctx ends.
func (t takings) Start(ctx context.Context) error {
	informer, err := t.of.informers.GetInformer(ctx, t.of.main)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it ends before the cache was filled
	}
	if err != nil {
		return fmt.Errorf("listening to the cache of %s: %w", t.of.kind.Kind, err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) { t.lost(ctx, object) }})
	if err != nil {
		return fmt.Errorf("listening to the cache of %s: %w", t.of.kind.Kind, err)
	}
	<-ctx.Done()
	_ = informer.RemoveEventHandler(registration) // both end now
	return nil
}

// lost makes sure that work on an object which the cache has lost ends if another shard may have it.
func (t takings) lost(ctx context.Context, object any) {
	name, err := toolscache.DeletionHandlingObjectToName(object)
	if key := name.AsNamespacedName(); err == nil && t.of.gate.isBusy(key) {
		go t.of.endIfTaken(ctx, key)
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
