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

// retryPeriod is the delay before an object is requeued because the cache is behind, or because the
// shard must release it but is still working on it.
const retryPeriod = 100 * time.Millisecond

// errKept means that admission has restored the label of this shard.
var errKept = errors.New("admission restored the label of this shard: give the shard the name of its pod, or list its service account in the ring's spec.shards.serviceAccounts")

// reconciler answers the sharder, and calls an inner reconciler for the objects of this shard.
type reconciler struct {
	shard    *Shard
	passages *passages
	// id is the bit of this controller in passages.
	id   controllers
	kind schema.GroupVersionKind
	// main is an object of the type under which the kind is cached.
	main client.Object
	// cache holds the objects of this shard; live reads and writes all objects.
	cache     client.Reader
	informers cache.Informers
	live      client.Client
	mapper    meta.RESTMapper
	inner     reconcile.Reconciler
}

// Reconciler returns a reconciler that answers the sharder about objects of one kind and calls
// inner for those assigned to this shard. The argument kind is an object of the type under which
// they are cached, and must be one of the shard's Kinds. NewManager must have been called.
//
// [Builder] uses it to build a controller. If you build one yourself, it must not need leader
// election, and it must enqueue every object that the sharder wants to move from this shard. If the
// shard is standalone, Reconciler returns inner.
func (s *Shard) Reconciler(kind client.Object, inner reconcile.Reconciler) (reconcile.Reconciler, error) {
	if s.options.Standalone {
		return inner, nil
	}
	if s.mgr == nil {
		return nil, errors.New("a sharded controller requires the manager of the shard: call NewManager first")
	}
	gvk, err := apiutil.GVKForObject(kind, s.mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", kind, err)
	}
	if !s.isSharded(gvk) {
		return nil, fmt.Errorf("%s is not one of the Kinds of the shard, so its objects are not sharded", gvk.Kind)
	}
	s.recordType(kind)
	g, isNew := s.passagesOf(gvk, kind)
	r := &reconciler{
		shard: s, passages: g, id: g.join(), kind: gvk, main: kind, cache: s.mgr.GetCache(), informers: s.mgr.GetCache(), live: s.live,
		mapper: s.mgr.GetRESTMapper(), inner: inner,
	}
	if isNew { // controllers that share the cache and the passages share one watcher
		if err := s.mgr.Add(lossWatcher{r}); err != nil {
			return nil, fmt.Errorf("watching for objects of kind %s that are taken from this shard: %w", gvk.Kind, err)
		}
	}
	return r, nil
}

// Reconcile calls the inner reconciler if the object is assigned to this shard, or was when it was
// deleted. The context that it passes on ends when this shard loses the right to act, or the
// object.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := r.shard.right.bound(ctx, ErrLeaseLost)
	defer cancel()
	if r.shard.right.await(ctx) != nil {
		return reconcile.Result{}, nil // the process is terminating
	}
	object, err := r.read(ctx, req.NamespacedName)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case object == nil:
		return r.reconcileMissing(ctx, req)
	case r.shard.isDraining(object):
		return r.release(ctx, req.NamespacedName)
	}
	return r.work(ctx, req)
}

// read returns the cached object, or nil if the cache does not hold it. The object must not be
// modified.
func (r *reconciler) read(ctx context.Context, key client.ObjectKey) (client.Object, error) {
	object := emptyOf(r.main)
	err := r.cache.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nil means that the cache does not hold it
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", r.kind.Kind, key, err)
	}
	return object, nil
}

// work calls the inner reconciler unless the object is being released.
func (r *reconciler) work(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	ctx, leave, entered := r.enter(ctx, key)
	if !entered {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	defer leave()
	object, err := r.read(ctx, key) // read after entering: no controller can release it from now on
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case object == nil || r.shard.isDraining(object):
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	case !r.shard.owns(object) || r.passages.mayBeReleased(key, object.GetResourceVersion()):
		return reconcile.Result{}, nil // the cache is behind; an event follows
	}
	isCurrent, err := r.isCurrent(ctx, object)
	if err != nil || !isCurrent {
		return reconcile.Result{RequeueAfter: retryPeriod}, err
	}
	if wait := r.awaitChildren(ctx, key, object); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r.passages.addWorker(key, object.GetUID(), r.id)
	return r.callInner(ctx, req)
}

// enter begins a reconcile of an object unless the object is being released. The returned context
// ends when the object is taken from this shard, and when leave is called.
func (r *reconciler) enter(ctx context.Context, key client.ObjectKey) (_ context.Context, leave func(), entered bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &work{end: cancel}
	if !r.passages.enter(key, w) {
		cancel(nil)
		return nil, nil, false
	}
	return ctx, func() {
		r.passages.leave(key, w)
		cancel(nil)
	}, true
}

// callInner calls the inner reconciler. If the object was taken from this shard meanwhile, it is
// requeued, because it may have returned by now.
func (r *reconciler) callInner(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.inner.Reconcile(ctx, req)
	if errors.Is(context.Cause(ctx), ErrTaken) {
		logf.FromContext(ctx).Info("Canceled the reconcile of an object that was taken from this shard", "kind", r.kind.Kind, "object", req.NamespacedName)
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	return result, err //nolint:wrapcheck // the controller logs it as an error of the inner reconciler
}

// isCurrent reports whether a cached object is assigned to this shard. An API server that is behind
// may have filled the cache with objects of an earlier process of the same name, so an object that
// was last written before this process acquired its Lease is compared with the API server once.
func (r *reconciler) isCurrent(ctx context.Context, object client.Object) (bool, error) {
	key := client.ObjectKeyFromObject(object)
	if r.passages.uid(key) == object.GetUID() || isLater(object.GetResourceVersion(), r.shard.since()) {
		return true, nil
	}
	stored := metadataOf(r.kind)
	if err := r.live.Get(ctx, key, stored); err != nil {
		return false, client.IgnoreNotFound(err) //nolint:wrapcheck // the error names the object
	}
	return stored.UID == object.GetUID() && r.shard.owns(stored) && !r.shard.isDraining(stored), nil
}

// reconcileMissing calls the inner reconciler for an object that it has reconciled and that was
// deleted. A moved object is also missing from the cache; a live read distinguishes the two.
func (r *reconciler) reconcileMissing(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	if !r.passages.isWorker(key, r.id) {
		r.passages.forget(key, r.id)
		return reconcile.Result{}, nil
	}
	stored := metadataOf(r.kind)
	err := r.live.Get(ctx, key, stored)
	if err == nil && r.shard.owns(stored) {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil // the cache will catch up
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading %s %s, which was deleted or moved: %w", r.kind.Kind, key, err)
	}
	ctx, leave, entered := r.enter(ctx, key)
	if !entered {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	defer leave()
	if err == nil {
		r.passages.forget(key, r.id) // it was taken from this shard
		return reconcile.Result{}, nil
	}
	go r.endIfTaken(ctx, key) // the cache would not show a new object of this name that another shard gets
	result, err := r.callInner(ctx, req)
	if err == nil && result.IsZero() {
		r.passages.forget(key, r.id)
	}
	return result, err
}

// release acknowledges a drain: it releases an object that the sharder wants to move, once no
// controller of this shard is working on it. The write is conditional on the version that the
// decision used, so a late write cannot affect an object that this shard may be working on again.
func (r *reconciler) release(ctx context.Context, key client.ObjectKey) (reconcile.Result, error) {
	if !r.passages.close(key) {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	}
	defer r.passages.open(key)
	object, err := r.read(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if object == nil || !r.shard.isDraining(object) || r.passages.isReleased(key, object.GetResourceVersion()) {
		return reconcile.Result{RequeueAfter: retryPeriod}, nil // the cache is behind, or the sharder has canceled the move
	}
	patch, err := r.shard.acknowledgement(object)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.passages.releasing(key, object.GetResourceVersion())
	stored := metadataOf(r.kind)
	stored.Namespace, stored.Name = key.Namespace, key.Name
	err = r.live.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the cache was behind
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("releasing %s %s: %w", r.kind.Kind, key, err)
	case r.shard.owns(stored):
		r.passages.cancelRelease(key)
		return reconcile.Result{}, fmt.Errorf("releasing %s %s: %w", r.kind.Kind, key, errKept)
	}
	r.passages.confirmRelease(key)
	logf.FromContext(ctx).V(1).Info("Released an object", "kind", r.kind.Kind, "object", key)
	r.shard.options.Acknowledged(Acknowledgement{Kind: r.kind, Key: key, UID: object.GetUID(), ResourceVersion: stored.ResourceVersion})
	return reconcile.Result{}, nil
}

// awaitChildren returns the delay before the next check for the children of an object that has
// moved to this shard. It returns zero if the caches hold them or the wait has timed out.
func (r *reconciler) awaitChildren(ctx context.Context, key client.ObjectKey, object client.Object) time.Duration {
	annotation := object.GetAnnotations()[r.shard.options.LabelPrefix.ChildrenAnnotation(r.shard.options.Ring)]
	if annotation == "" {
		return 0
	}
	now := time.Now()
	since := r.passages.waitingSince(key, annotation, now)
	if since.IsZero() {
		return 0
	}
	missing := r.missingChildren(ctx, object, annotation, now.Sub(since))
	if missing != "" && now.Sub(since) < childrenTimeout {
		return childrenPeriod
	}
	if missing != "" {
		logf.FromContext(ctx).Info("Reconciling an object whose children the caches may not have yet", "kind", r.kind.Kind, "object", key, "missing", missing)
	}
	r.passages.childrenArrived(key, annotation)
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

// isDraining reports whether the sharder is waiting for this shard to release an object.
func (s *Shard) isDraining(object client.Object) bool {
	to := object.GetLabels()[s.options.LabelPrefix.DrainLabel(s.options.Ring)]
	return to != "" && to != s.options.Name && s.owns(object)
}

// acknowledgement returns the merge patch that removes the shard label from the given version of an
// object. In a ring that labels no children, the patch also assigns the object to the shard that
// the sharder has chosen, which saves the policy's work on the API server or a write by the
// sharder.
func (s *Shard) acknowledgement(object client.Object) ([]byte, error) {
	shard, drain := s.options.LabelPrefix.ShardLabel(s.options.Ring), s.options.LabelPrefix.DrainLabel(s.options.Ring)
	labels := map[string]any{shard: nil}
	if s.direct.Load() {
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

// metadataOf returns an empty PartialObjectMetadata of a kind.
func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(kind)
	return m
}

// emptyOf returns an empty object of the same type and kind.
func emptyOf(object client.Object) client.Object {
	empty := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	empty.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	return empty
}

// listOf returns an empty list for objects of the given type and kind.
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
