package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// retryPeriod is when to look again at an object that is just given away, or that has changed meanwhile.
const retryPeriod = 100 * time.Millisecond

// reconciler answers the sharder, and lets another reconciler work on what is this shard's.
type reconciler struct {
	shard *Shard
	gate  *gate
	kind  schema.GroupVersionKind
	// main is an object of the kind, as the cache has them.
	main client.Object
	// cache reads what this shard has, live everything.
	cache    client.Reader
	live     client.Client
	children children
	inner    reconcile.Reconciler
}

// Reconcile calls the inner reconciler if the object is this shard's, or was until it was deleted. Its
// context ends when this shard loses the right to act.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := r.shard.right.bound(ctx, ErrLeaseLost)
	defer cancel()
	if r.shard.right.await(ctx) != nil {
		return reconcile.Result{}, nil // this process ends
	}
	key := req.NamespacedName
	object := emptyOf(r.main)
	err := r.cache.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err):
		return r.missing(ctx, req)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", r.kind.Kind, key, err)
	case r.isDraining(object):
		return r.giveAway(ctx, key)
	}
	return r.work(ctx, req)
}

// work calls the inner reconciler unless the object is given away.
func (r *reconciler) work(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	if !r.gate.enter(key) {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	defer r.gate.leave(key)
	object := emptyOf(r.main)
	err := r.cache.Get(ctx, key, object) // only now does nobody give it away
	if apierrors.IsNotFound(err) || err == nil && r.isDraining(object) {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", r.kind.Kind, key, err)
	}
	if !r.isOwn(object) || r.gate.isGiven(key, object.GetResourceVersion()) {
		return reconcile.Result{}, nil
	}
	if wait := r.awaitChildren(ctx, key, object); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r.gate.know(key, object.GetUID())
	return r.inner.Reconcile(ctx, req) //nolint:wrapcheck // the controller logs it as the inner reconciler's
}

// missing tells the inner reconciler that an object which it has worked on was deleted. An object that has
// moved is not in the cache either: only the API server can say.
func (r *reconciler) missing(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	if !r.gate.isKnown(key) {
		r.gate.forget(key)
		return reconcile.Result{}, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(r.kind)
	err := r.live.Get(ctx, key, object)
	if err == nil && r.isOwn(object) {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil // the cache will have it
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading %s %s, which was deleted or moved: %w", r.kind.Kind, key, err)
	}
	if !r.gate.enter(key) {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	defer r.gate.leave(key)
	if err == nil {
		r.gate.forget(key)
		return reconcile.Result{}, nil
	}
	result, err := r.inner.Reconcile(ctx, req)
	if err == nil && result.IsZero() {
		r.gate.forget(key)
	}
	return result, err //nolint:wrapcheck // the controller logs it as the inner reconciler's
}

// giveAway lets go of an object that the sharder wants to move, when no controller of this shard works on
// it any more. The request names the version of which the decision was made, so that one which arrives
// late changes nothing that this shard may work on again.
func (r *reconciler) giveAway(ctx context.Context, key client.ObjectKey) (reconcile.Result, error) {
	if !r.gate.close(ctx, key) {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	defer r.gate.open(key)
	object := emptyOf(r.main)
	if err := r.cache.Get(ctx, key, object); err != nil {
		return reconcile.Result{RequeueAfter: retryPeriod}, client.IgnoreNotFound(err) //nolint:wrapcheck // of the cache
	}
	if !r.isDraining(object) {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	patch, err := r.acknowledgement(object)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.gate.give(key, object.GetResourceVersion())
	stored := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	stored.SetGroupVersionKind(r.kind)
	err = r.live.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the cache is behind
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("giving %s %s away: %w", r.kind.Kind, key, err)
	}
	r.gate.gave(key)
	logf.FromContext(ctx).V(1).Info("Gave an object away", "kind", r.kind.Kind, "object", key)
	r.shard.options.Acknowledged(Acknowledgement{Kind: r.kind, Key: key, UID: object.GetUID(), ResourceVersion: stored.ResourceVersion})
	return reconcile.Result{}, nil
}

// acknowledgement returns the merge patch that removes the shard label from an object as it was read.
func (r *reconciler) acknowledgement(object client.Object) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "labels": map[string]any{r.shardLabel(): nil},
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return patch, nil
}

// awaitChildren returns when to look again whether the caches have the children of an object that has
// moved to this shard, zero if they have, or if that takes too long.
func (r *reconciler) awaitChildren(ctx context.Context, key client.ObjectKey, object client.Object) time.Duration {
	note := object.GetAnnotations()[r.shard.options.LabelPrefix.ChildrenAnnotation(r.shard.options.Ring)]
	if note == "" {
		return 0
	}
	now := time.Now()
	since := r.gate.waited(key, note, now)
	if since.IsZero() {
		return 0
	}
	missing := r.children.missing(ctx, note)
	if missing != "" && now.Sub(since) < childrenTimeout {
		return childrenPeriod
	}
	if missing != "" {
		logf.FromContext(ctx).Info("Reconciling an object whose children the caches may not have yet", "kind", r.kind.Kind, "object", key, "missing", missing)
	}
	r.gate.arrived(key, note)
	r.shard.metrics.waits.Observe(now.Sub(since).Seconds())
	return 0
}

func (r *reconciler) isOwn(object client.Object) bool {
	return object.GetLabels()[r.shardLabel()] == r.shard.options.Name
}

// isDraining reports whether the sharder waits until this shard gives an object away.
func (r *reconciler) isDraining(object client.Object) bool {
	return r.isOwn(object) && r.shard.isMarked(object)
}

func (r *reconciler) shardLabel() string {
	return r.shard.options.LabelPrefix.ShardLabel(r.shard.options.Ring)
}

// isMarked reports whether an object is in a hand-over.
func (s *Shard) isMarked(object client.Object) bool {
	return object.GetLabels()[s.options.LabelPrefix.DrainLabel(s.options.Ring)] != ""
}
