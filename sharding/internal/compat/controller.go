package compat

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

const (
	conditionReady = "Ready"
	// The reasons why a ControllerRing has no mirror. Those of the mirror's own condition are in package
	// ring.
	nameConflict = "NameConflict"
	invalidSpec  = "InvalidSpec"
)

// workers is how many ControllerRings are worked on at a time: one that fails does not delay the others.
const workers = 4

// Controller mirrors ControllerRings. It writes only while this process leads. All fields are required.
type Controller struct {
	// Client writes both kinds, and reads them from a cache.
	Client client.Client
	// Live reads them from the API server.
	Live     client.Reader
	Recorder events.EventRecorder
	// SyncPeriod bounds the time between two attempts at a ControllerRing that fails.
	SyncPeriod time.Duration
}

// Register makes the manager run the controller.
func (c *Controller) Register(mgr manager.Manager) error {
	err := builder.ControllerManagedBy(mgr).Named("controllerring").For(newControllerRing()).Owns(&v1alpha1.ClusterRing{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, c.SyncPeriod),
		}).Complete(c)
	if err != nil {
		return fmt.Errorf("mirroring ControllerRings: %w", err)
	}
	return nil
}

// Reconcile mirrors one ControllerRing.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	u := newControllerRing()
	err := c.Client.Get(ctx, req.NamespacedName, u)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading ControllerRing %q: %w", req.Name, err)
	}
	if err != nil || u.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, c.remove(ctx, req.Name)
	}
	parsed, err := parse(u)
	if err != nil {
		return reconcile.Result{}, err
	}
	mirror, err := c.mirror(ctx, u, parsed)
	after := parsed.Status
	switch {
	case apierrors.IsInvalid(err):
		after.set(u, metav1.ConditionFalse, invalidSpec, err.Error())
		c.report(u, &parsed.Status, &after)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: time.Second}, nil // the cache shows soon what it is now
	case err != nil:
		return reconcile.Result{}, err
	case mirror == nil:
		after.set(u, metav1.ConditionFalse, nameConflict,
			fmt.Sprintf("ClusterRing %s exists and does not belong to this ControllerRing: delete or rename one of them", u.GetName()))
		c.report(u, &parsed.Status, &after)
	default:
		after = observed(u, &parsed.Status, mirror)
	}
	return reconcile.Result{RequeueAfter: c.requeueAfter(mirror)}, c.store(ctx, u, &parsed.Status, &after)
}

// requeueAfter returns when to check whether the name of the mirror is free. It is zero if there is a mirror,
// whose events requeue its ControllerRing.
func (c *Controller) requeueAfter(mirror *v1alpha1.ClusterRing) time.Duration {
	if mirror == nil {
		return min(c.SyncPeriod, 10*time.Second)
	}
	return 0
}

// mirror makes the mirror of a ControllerRing as it must be, and returns it. It returns nil if the
// ClusterRing of that name is somebody else's.
func (c *Controller) mirror(ctx context.Context, u *unstructured.Unstructured, parsed *controllerRing) (*v1alpha1.ClusterRing, error) {
	is := &v1alpha1.ClusterRing{}
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(u), is)
	log := logf.FromContext(ctx).WithValues("ring", u.GetName())
	if apierrors.IsNotFound(err) {
		want := &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: u.GetName()}}
		apply(u, parsed, want)
		if err := c.Client.Create(ctx, want); err != nil {
			return nil, fmt.Errorf("creating ClusterRing %q: %w", want.Name, err)
		}
		log.Info("Mirrored a ControllerRing")
		return want, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ClusterRing %q: %w", u.GetName(), err)
	}
	if !isMirror(is) {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	want := is.DeepCopy()
	apply(u, parsed, want)
	if is.DeletionTimestamp != nil || equality.Semantic.DeepEqual(is.Spec, want.Spec) && equality.Semantic.DeepEqual(is.OwnerReferences, want.OwnerReferences) {
		return is, nil // a mirror that is being deleted is created again when it is gone
	}
	if err := c.Client.Patch(ctx, want, client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("updating ClusterRing %q: %w", want.Name, err)
	}
	log.Info("Updated the mirror of a ControllerRing")
	return want, nil
}

// isMirror reports whether a ClusterRing is the mirror of a ControllerRing of its name, or of an earlier
// one.
func isMirror(of *v1alpha1.ClusterRing) bool {
	owner := metav1.GetControllerOf(of)
	if owner == nil || owner.Kind != Kind.Kind || owner.Name != of.Name {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == Kind.Group
}

// remove deletes the mirror of a ControllerRing that live reads show to be gone: its objects lose their
// labels, and the ring goes.
func (c *Controller) remove(ctx context.Context, name string) error {
	key := types.NamespacedName{Name: name}
	is := &v1alpha1.ClusterRing{}
	err := c.Live.Get(ctx, key, is)
	if apierrors.IsNotFound(err) || err == nil && (!isMirror(is) || is.DeletionTimestamp != nil) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ClusterRing %q: %w", name, err)
	}
	u := newControllerRing()
	err = c.Live.Get(ctx, key, u)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ControllerRing %q: %w", name, err)
	}
	if err == nil && u.GetDeletionTimestamp() == nil {
		return nil // it is back, and the watch shows that
	}
	err = c.Client.Delete(ctx, is, client.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion})
	if apierrors.IsNotFound(err) {
		return nil // somebody else was first
	}
	if err != nil {
		return fmt.Errorf("deleting ClusterRing %q: %w", name, err)
	}
	logf.FromContext(ctx).Info("Deleted the mirror of a ControllerRing that is gone", "ring", name)
	return nil
}

// store writes the status of a ControllerRing.
func (c *Controller) store(ctx context.Context, u *unstructured.Unstructured, before, after *status) error {
	patch, err := patchOf(u, before, after)
	if err != nil || patch == nil {
		return err
	}
	err = c.Client.Status().Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the watch shows what it is now
	}
	if err != nil {
		return fmt.Errorf("storing the status of ControllerRing %q: %w", u.GetName(), err)
	}
	return nil
}

// report creates an event that says why a ControllerRing has no mirror, unless its status says so already.
func (c *Controller) report(u *unstructured.Unstructured, before, after *status) {
	ready := meta.FindStatusCondition(after.Conditions, conditionReady)
	if ready != nil && !equality.Semantic.DeepEqual(before.Conditions, after.Conditions) {
		c.Recorder.Eventf(u, nil, corev1.EventTypeWarning, ready.Reason, "Mirror", "%s", ready.Message)
	}
}
