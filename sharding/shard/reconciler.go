package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// retryPeriod is the delay after which an object is requeued because the cache is behind, or because the
// shard must give it away and still works on it.
const retryPeriod = 100 * time.Millisecond

// errKept means that admission has put the label of this shard back.
var errKept = errors.New("the API server keeps the label of this shard: list its service account in spec.shards.serviceAccounts of the ring")

// reconciler answers the sharder, and lets another reconciler work on what is this shard's.
type reconciler struct {
	shard *Shard
	gate  *gate
	// as is this controller among those of the gate.
	as   controllers
	kind schema.GroupVersionKind
	// main is an object of the kind, as the cache has them.
	main client.Object
	// cache reads what this shard has, live everything.
	cache     client.Reader
	informers cache.Informers
	live      client.Client
	mapper    meta.RESTMapper
	inner     reconcile.Reconciler
}

// Reconciler returns a reconciler that answers the sharder about objects of one kind, and otherwise lets
// inner reconcile those of this shard. Kind is an object of the type by which they are cached. NewManager must
// have been called. [Builder] makes a controller of it; one that you make yourself must not need leader
// election, and must enqueue every object whose label says that the sharder wants to move it.
func (s *Shard) Reconciler(kind client.Object, inner reconcile.Reconciler) (reconcile.Reconciler, error) {
	if s.options.Standalone {
		return inner, nil
	}
	if s.mgr == nil {
		return nil, errors.New("a sharded controller needs the manager of the shard: call NewManager first")
	}
	gvk, err := apiutil.GVKForObject(kind, s.mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", kind, err)
	}
	if !s.shares(gvk) {
		return nil, fmt.Errorf("%s is not one of the Kinds of the shard: its objects are not shared out", gvk.Kind)
	}
	s.note(kind)
	g, isNew := s.gateOf(gvk, kind)
	r := &reconciler{
		shard: s, gate: g, as: g.join(), kind: gvk, main: kind, cache: s.mgr.GetCache(), informers: s.mgr.GetCache(), live: s.live,
		mapper: s.mgr.GetRESTMapper(), inner: inner,
	}
	if isNew { // one for all controllers that share the cache and the gate
		if err := s.mgr.Add(lossWatcher{r}); err != nil {
			return nil, fmt.Errorf("watching which objects of kind %s are taken from this shard: %w", gvk.Kind, err)
		}
	}
	return r, nil
}

// Reconcile calls the inner reconciler if the object is this shard's, or was until it was deleted. Its
// context ends when this shard loses the right to act, or the object.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := r.shard.right.bound(ctx, ErrLeaseLost)
	defer cancel()
	if r.shard.right.await(ctx) != nil {
		return reconcile.Result{}, nil // this process ends
	}
	object, err := r.read(ctx, req.NamespacedName)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case object == nil:
		return r.missing(ctx, req)
	case r.shard.isDraining(object):
		return r.giveAway(ctx, req.NamespacedName)
	}
	return r.work(ctx, req)
}

// read returns an object as the cache has it, nil if it has none. It must not be modified.
func (r *reconciler) read(ctx context.Context, key client.ObjectKey) (client.Object, error) {
	object := emptyOf(r.main)
	err := r.cache.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", r.kind.Kind, key, err)
	}
	return object, nil
}

// work calls the inner reconciler unless the object is given away.
func (r *reconciler) work(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	ctx, leave, isIn := r.enter(ctx, key)
	if !isIn {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	defer leave()
	object, err := r.read(ctx, key) // only now does nobody give it away
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case object == nil || r.shard.isDraining(object):
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	case !r.shard.owns(object) || r.gate.isGiven(key, object.GetResourceVersion()):
		return reconcile.Result{}, nil // the cache shows soon what it is
	}
	isCurrent, err := r.isCurrent(ctx, object)
	if err != nil || !isCurrent {
		return reconcile.Result{RequeueAfter: retryPeriod}, err
	}
	if wait := r.awaitChildren(ctx, key, object); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r.gate.know(key, object.GetUID(), r.as)
	return r.call(ctx, req)
}

// enter lets a controller work on an object unless that is given away. The returned context ends
// when the object is taken from this shard, and when leave is called.
func (r *reconciler) enter(ctx context.Context, key client.ObjectKey) (_ context.Context, leave func(), isIn bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &work{end: cancel}
	if !r.gate.enter(key, w) {
		cancel(nil)
		return nil, nil, false
	}
	return ctx, func() {
		r.gate.leave(key, w)
		cancel(nil)
	}, true
}

// call calls the inner reconciler. If the object was taken from this shard meanwhile, it is looked at again:
// it may be back by now.
func (r *reconciler) call(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.inner.Reconcile(ctx, req)
	if errors.Is(context.Cause(ctx), ErrTaken) {
		logf.FromContext(ctx).Info("Ended the work on an object that was taken from this shard", "kind", r.kind.Kind, "object", req.NamespacedName)
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	return result, err //nolint:wrapcheck // the controller logs it as the inner reconciler's
}

// isCurrent reports whether an object that the cache shows is this shard's. An API server that is behind
// may have filled the cache with what a former process of this name had: what was last written before
// this process held its Lease is compared with the API server once.
func (r *reconciler) isCurrent(ctx context.Context, object client.Object) (bool, error) {
	key := client.ObjectKeyFromObject(object)
	if r.gate.known(key) == object.GetUID() || isLater(object.GetResourceVersion(), r.shard.since()) {
		return true, nil
	}
	stored := metadataOf(r.kind)
	if err := r.live.Get(ctx, key, stored); err != nil {
		return false, client.IgnoreNotFound(err) //nolint:wrapcheck // it says what was read
	}
	return stored.UID == object.GetUID() && r.shard.owns(stored) && !r.shard.isDraining(stored), nil
}

// missing tells the inner reconciler that an object which it has worked on was deleted. An object that has
// moved is not in the cache either: only the API server can say.
func (r *reconciler) missing(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	if !r.gate.knows(key, r.as) {
		r.gate.forget(key, r.as)
		return reconcile.Result{}, nil
	}
	stored := metadataOf(r.kind)
	err := r.live.Get(ctx, key, stored)
	if err == nil && r.shard.owns(stored) {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil // the cache will have it
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading %s %s, which was deleted or moved: %w", r.kind.Kind, key, err)
	}
	ctx, leave, isIn := r.enter(ctx, key)
	if !isIn {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	defer leave()
	if err == nil {
		r.gate.forget(key, r.as) // somebody has taken it away
		return reconcile.Result{}, nil
	}
	go r.endIfTaken(ctx, key) // the cache shows nothing of an object of that name that another shard gets
	result, err := r.call(ctx, req)
	if err == nil && result.IsZero() {
		r.gate.forget(key, r.as)
	}
	return result, err
}

// giveAway lets go of an object that the sharder wants to move, when no controller of this shard works on
// it any more. The request names the version of which the decision was made, so that one which arrives
// late changes nothing that this shard may work on again.
func (r *reconciler) giveAway(ctx context.Context, key client.ObjectKey) (reconcile.Result, error) {
	if !r.gate.close(key) {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	defer r.gate.open(key)
	object, err := r.read(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if object == nil || !r.shard.isDraining(object) || r.gate.isOut(key, object.GetResourceVersion()) {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil // the cache is behind, or the sharder has changed its mind
	}
	patch, err := r.shard.acknowledgement(object)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.gate.give(key, object.GetResourceVersion())
	stored := metadataOf(r.kind)
	stored.Namespace, stored.Name = key.Namespace, key.Name
	err = r.live.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the cache is behind
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("giving %s %s away: %w", r.kind.Kind, key, err)
	case r.shard.owns(stored):
		r.gate.keep(key)
		return reconcile.Result{}, fmt.Errorf("giving %s %s away: %w", r.kind.Kind, key, errKept)
	}
	r.gate.gave(key)
	logf.FromContext(ctx).V(1).Info("Gave an object away", "kind", r.kind.Kind, "object", key)
	r.shard.options.Acknowledged(Acknowledgement{Kind: r.kind, Key: key, UID: object.GetUID(), ResourceVersion: stored.ResourceVersion})
	return reconcile.Result{}, nil
}

// awaitChildren returns the delay before the next check whether the caches have the children of an object
// that has moved to this shard. It is zero if they have them, or if that takes too long.
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
	missing := r.missingChildren(ctx, object, note, now.Sub(since))
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

func (r *reconciler) shardLabel() string {
	return r.shard.options.LabelPrefix.ShardLabel(r.shard.options.Ring)
}

// owns reports whether an object is assigned to this shard.
func (s *Shard) owns(object client.Object) bool {
	return object.GetLabels()[s.options.LabelPrefix.ShardLabel(s.options.Ring)] == s.options.Name
}

// isDraining reports whether the sharder waits until this shard gives an object away.
func (s *Shard) isDraining(object client.Object) bool {
	to := object.GetLabels()[s.options.LabelPrefix.DrainLabel(s.options.Ring)]
	return to != "" && to != s.options.Name && s.owns(object)
}

// acknowledgement returns the merge patch that removes the shard label from an object as it was
// read. If no objects have children that must move before them, it also does what would have to be
// done next, and spares the API server the policy, or the sharder a write: the object gets the
// shard that the sharder has chosen.
func (s *Shard) acknowledgement(object client.Object) ([]byte, error) {
	shard, drain := s.options.LabelPrefix.ShardLabel(s.options.Ring), s.options.LabelPrefix.DrainLabel(s.options.Ring)
	labels := map[string]any{shard: nil}
	if s.isDirect.Load() {
		labels = map[string]any{shard: object.GetLabels()[drain], drain: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "labels": labels,
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return patch, nil
}

// metadataOf returns an empty object that holds the metadata of one of a kind.
func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(kind)
	return m
}

// emptyOf returns an empty object of the type and kind of another one.
func emptyOf(object client.Object) client.Object {
	empty := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	empty.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	return empty
}

// listOf returns an empty list of objects of the type of one.
func listOf(scheme *runtime.Scheme, kind schema.GroupVersionKind, object client.Object) (client.ObjectList, error) {
	kind = kind.GroupVersion().WithKind(kind.Kind + "List")
	switch object.(type) {
	case *metav1.PartialObjectMetadata:
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	case runtime.Unstructured:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	}
	list, err := scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("making a list of %s: %w", kind.Kind, err)
	}
	typed, ok := list.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is not a list of objects", list)
	}
	return typed, nil
}
