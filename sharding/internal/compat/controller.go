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
	// Reasons of the condition of a ControllerRing without a mirror. Package ring has the reasons
	// of a mirror's own condition.
	nameConflict = "NameConflict"
	invalidSpec  = "InvalidSpec"
)

// workers is the number of ControllerRings that are reconciled concurrently, so that a failing one
// does not delay others.
const workers = 4

// Controller mirrors ControllerRings into ClusterRings. It writes only while this process is the
// leader. All fields are required.
type Controller struct {
	// Client writes both kinds and reads them from a cache.
	Client client.Client
	// Live reads both kinds from the API server.
	Live     client.Reader
	Recorder events.EventRecorder
	// SyncPeriod bounds the delay between retries for a failing ControllerRing.
	SyncPeriod time.Duration
}

// Register adds the controller to the manager.
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

// Reconcile updates the mirror and the status of one ControllerRing.
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
		return reconcile.Result{RequeueAfter: time.Second}, nil // the cache will catch up
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

// requeueAfter returns the delay before the next check whether the name of the mirror is free. It
// is zero if there is a mirror, because the mirror's events requeue the ControllerRing.
func (c *Controller) requeueAfter(mirror *v1alpha1.ClusterRing) time.Duration {
	if mirror == nil {
		return min(c.SyncPeriod, 10*time.Second)
	}
	return 0
}

// mirror creates or updates the mirror of a ControllerRing and returns it. It returns nil if a
// ClusterRing of that name exists and is not a mirror.
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
		return nil, nil //nolint:nilnil // nil means that the name is taken
	}
	want := is.DeepCopy()
	apply(u, parsed, want)
	if is.DeletionTimestamp != nil || equality.Semantic.DeepEqual(is.Spec, want.Spec) && equality.Semantic.DeepEqual(is.OwnerReferences, want.OwnerReferences) {
		return is, nil // a mirror that is being deleted is recreated afterwards
	}
	if err := c.Client.Patch(ctx, want, client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("updating ClusterRing %q: %w", want.Name, err)
	}
	log.Info("Updated the mirror of a ControllerRing")
	return want, nil
}

// isMirror reports whether a ClusterRing is the mirror of a current or earlier ControllerRing of
// the same name.
func isMirror(of *v1alpha1.ClusterRing) bool {
	owner := metav1.GetControllerOf(of)
	if owner == nil || owner.Kind != Kind.Kind || owner.Name != of.Name {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == Kind.Group
}

// remove deletes the mirror of a ControllerRing that live reads show to be deleted. The deletion
// removes the sharding labels of the ring's objects.
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
		return nil // it exists again; its event follows
	}
	err = c.Client.Delete(ctx, is, client.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion})
	if apierrors.IsNotFound(err) {
		return nil // it is already deleted
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
		return nil // an event with the current version follows
	}
	if err != nil {
		return fmt.Errorf("storing the status of ControllerRing %q: %w", u.GetName(), err)
	}
	return nil
}

// report emits an event that explains why a ControllerRing has no mirror, unless its status already
// does.
func (c *Controller) report(u *unstructured.Unstructured, before, after *status) {
	ready := meta.FindStatusCondition(after.Conditions, conditionReady)
	if ready != nil && !equality.Semantic.DeepEqual(before.Conditions, after.Conditions) {
		c.Recorder.Eventf(u, nil, corev1.EventTypeWarning, ready.Reason, "Mirror", "%s", ready.Message)
	}
}
