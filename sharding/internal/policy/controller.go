package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ring"
)

// The condition that this package reports, and its reasons.
const (
	condition = "AdmissionInstalled"

	installed     = "PolicyInstalled"
	disabled      = "Disabled"
	installFailed = "InstallFailed"
	waiting       = "WaitingForResource"
	installing    = "Installing"
)

// workers is how many rings are worked on at a time: one that fails does not delay the others.
const workers = 4

// Controller installs the policies of rings, and removes those of rings that are gone. It writes only while
// this process leads. All exported fields are required.
type Controller struct {
	// Client writes rings and policies, and reads them from a cache.
	Client    client.Client
	Resources *Resources
	Reports   *ring.Reports
	Dialect   ring.Dialect
	// Namespace is that of the sharder.
	Namespace string
	// Mode is ByPolicy or None, which removes the policies that there are.
	Mode Mode
	// SyncPeriod bounds the time between two attempts at a ring that fails.
	SyncPeriod time.Duration

	mu sync.Mutex
	// user is the name by which the API server knows this process, "" if it was not asked yet.
	user   string
	proofs map[string]*proof
}

// Register makes the manager run the controller.
func (c *Controller) Register(mgr manager.Manager) error {
	b := builder.ControllerManagedBy(mgr).Named("policy").
		For(&v1alpha1.ClusterRing{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, recorded()))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, c.SyncPeriod),
		})
	if c.Mode == ByPolicy {
		crd := &metav1.PartialObjectMetadata{}
		crd.SetGroupVersionKind(CRDKind)
		b = b.Watches(&admissionregistrationv1.MutatingAdmissionPolicy{}, handler.EnqueueRequestsFromMapFunc(toRing)).
			Watches(&admissionregistrationv1.MutatingAdmissionPolicyBinding{}, handler.EnqueueRequestsFromMapFunc(toRing)).
			WatchesMetadata(crd, handler.EnqueueRequestsFromMapFunc(c.usersOf))
	}
	if err := b.Complete(c); err != nil {
		return fmt.Errorf("installing policies: %w", err)
	}
	return nil
}

// recorded passes the change of a ring that records other resources. What else its status says changes
// often, and does not matter.
func recorded() predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.ClusterRing)
		after, isRing := e.ObjectNew.(*v1alpha1.ClusterRing)
		return ok && isRing && !slices.Equal(before.Status.LabelledResources, after.Status.LabelledResources)
	}}
}

// toRing returns the ring of a policy.
func toRing(_ context.Context, o client.Object) []reconcile.Request {
	if name := ringOf(o.GetName()); name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	}
	return nil
}

// usersOf returns the rings with the resource that a CRD defines.
func (c *Controller) usersOf(ctx context.Context, crd client.Object) (all []reconcile.Request) {
	rings := &v1alpha1.ClusterRingList{}
	if err := c.Client.List(ctx, rings); err != nil {
		logf.FromContext(ctx).Error(err, "Listing rings from the cache failed")
		return nil
	}
	for i := range rings.Items {
		isOf := func(r v1alpha1.GroupResource) bool { return r.Resource+"."+r.Group == crd.GetName() }
		if slices.ContainsFunc(resourcesOf(&rings.Items[i]), isOf) {
			all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Name: rings.Items[i].Name}})
		}
	}
	return all
}

// Reconcile installs or removes the policies of one ring.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r := &v1alpha1.ClusterRing{}
	err := c.Client.Get(ctx, req.NamespacedName, r)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading ring %q: %w", req.Name, err)
	}
	if err != nil || r.DeletionTimestamp != nil {
		c.forget(req.Name)
		return reconcile.Result{}, c.Remove(ctx, req.Name)
	}
	if c.Dialect.Ignores(r) {
		return reconcile.Result{}, nil
	}
	if c.Mode == None {
		if err := c.Remove(ctx, r.Name); err != nil {
			return reconcile.Result{}, err
		}
		c.report(r.Name, metav1.ConditionTrue, disabled, "the sharder assigns objects after they are created: it runs without admission")
		return reconcile.Result{}, nil
	}
	f, err := c.Resources.of(ctx, r)
	if err != nil {
		return reconcile.Result{}, err
	}
	again, err := c.keep(ctx, r, f)
	if f.again > 0 && (again == 0 || f.again < again) {
		again = f.again
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// keep installs the policies for the resources that were found, and reports what came of it. again is when
// to look whether the API server applies them, zero if there is nothing to see.
func (c *Controller) keep(ctx context.Context, r *v1alpha1.ClusterRing, f found) (again time.Duration, err error) {
	missing := f.missing()
	if len(f.resources) == 0 {
		c.forget(r.Name)
		c.report(r.Name, metav1.ConditionFalse, waiting, missing)
		return 0, c.Remove(ctx, r.Name)
	}
	user, err := c.self(ctx)
	if err != nil {
		return 0, err
	}
	b := &Builder{Prefix: c.Dialect.PrefixOf(r), Namespace: c.Namespace, Sharders: []string{user}}
	policies := b.Build(r, f.resources)
	hasWritten, err := c.install(ctx, r.Name, policies)
	if err != nil {
		return c.fail(r.Name, err)
	}
	if hasWritten {
		logf.FromContext(ctx).Info("Installed policies", "ring", r.Name, "revision", policies.Revision)
	}
	p := c.prove(ctx, r, policies.Revision, hasWritten)
	switch {
	case len(f.waiting) > 0:
		c.report(r.Name, metav1.ConditionFalse, waiting, missing)
	case p.applied:
		c.report(r.Name, metav1.ConditionTrue, installed, p.note)
	default:
		c.report(r.Name, metav1.ConditionFalse, installing, p.note)
	}
	if !p.applied {
		again = probePeriod
	}
	return again, nil
}

// fail reports why policies are not installed. What another attempt mends is not reported.
func (c *Controller) fail(name string, err error) (again time.Duration, _ error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return probePeriod, nil // the cache shows soon what it is now
	}
	c.forget(name)
	c.report(name, metav1.ConditionFalse, installFailed, err.Error())
	if errors.Is(err, errForeign) {
		return 0, nil // an event tells when it is gone
	}
	return 0, err
}

// self returns the name of the user that this process is to the API server.
func (c *Controller) self(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.user != "" {
		return c.user, nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("asking the API server who this process is: %w", err)
	}
	c.user = review.Status.UserInfo.Username
	return c.user, nil
}

func (c *Controller) report(name string, status metav1.ConditionStatus, reason, message string) {
	c.Reports.Change(name, func(r *ring.Report) {
		r.Set(metav1.Condition{Type: condition, Status: status, Reason: reason, Message: message})
	})
}
