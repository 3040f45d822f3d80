package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
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
	webhooksServe = "WebhookInstalled"
	disabled      = "Disabled"
	installFailed = "InstallFailed"
	waiting       = "WaitingForResource"
	installing    = "Installing"
)

// workers is the number of rings that are reconciled concurrently, so that a failing one does not
// delay others.
const workers = 4

// Controller installs the policies or webhooks of rings and removes those of deleted rings. It writes
// only while this process is the leader. All exported fields are required.
type Controller struct {
	// Client writes rings and policies and reads them from a cache.
	Client    client.Client
	Resources *Resources
	Reports   *ring.Reports
	Dialect   ring.Dialect
	// Namespace is the namespace of the sharder and of the tables.
	Namespace string
	// Mode is ByPolicy or ByWebhook, or None to remove existing policies and webhooks.
	Mode Mode
	// Webhooks is used by the mode ByWebhook only.
	Webhooks *Webhooks
	// Fences is set if the API server serves ValidatingAdmissionPolicies. Without them, rings have no
	// fence.
	Fences bool
	// Pods reads the pod of a shard from the API server before objects are taken from the shard by
	// force.
	Pods corev1client.PodsGetter
	// SyncPeriod bounds the delay between retries for a failing ring.
	SyncPeriod time.Duration

	mu sync.Mutex
	// user is the name under which the API server authenticates this process, or "" if it is not
	// known yet.
	user   string
	proofs map[string]*proof
	// fences are the proofs of fences, by ring.
	fences map[string]*fenceProof
}

// options returns the options of the controllers of this package. The delay between retries for a
// failing ring is at most longest.
func options(longest time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, longest),
	}
}

// Register adds the controller to the manager.
func (c *Controller) Register(mgr manager.Manager) error {
	b := builder.ControllerManagedBy(mgr).Named("policy").
		For(&v1alpha1.ClusterRing{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, recorded()))).
		WithOptions(options(c.SyncPeriod))
	switch c.Mode {
	case ByPolicy:
		b = b.Watches(&admissionregistrationv1.MutatingAdmissionPolicy{}, handler.EnqueueRequestsFromMapFunc(toRing)).
			Watches(&admissionregistrationv1.MutatingAdmissionPolicyBinding{}, handler.EnqueueRequestsFromMapFunc(toRing)).
			WatchesMetadata(CRD(), handler.EnqueueRequestsFromMapFunc(UsersOf(c.Client)))
	case ByWebhook:
		b = b.Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, handler.EnqueueRequestsFromMapFunc(webhooksToRing)).
			WatchesMetadata(CRD(), handler.EnqueueRequestsFromMapFunc(UsersOf(c.Client)))
	case Auto, None:
	}
	if c.Fences && c.Mode != None {
		b = b.Watches(&admissionregistrationv1.ValidatingAdmissionPolicy{}, handler.EnqueueRequestsFromMapFunc(toRing)).
			Watches(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, handler.EnqueueRequestsFromMapFunc(toRing))
	}
	if err := b.Complete(c); err != nil {
		return fmt.Errorf("installing policies: %w", err)
	}
	return nil
}

// recorded returns a predicate for updates that change the labelled resources in a ring's status.
// Other parts of the status change often and do not affect policies.
func recorded() predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.ClusterRing)
		after, isRing := e.ObjectNew.(*v1alpha1.ClusterRing)
		return ok && isRing && !slices.Equal(before.Status.LabelledResources, after.Status.LabelledResources)
	}}
}

// toRing maps a policy, binding or table to its ring.
func toRing(_ context.Context, o client.Object) []reconcile.Request {
	if name := ringOf(o.GetName()); name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	}
	return nil
}

// webhooksToRing maps a webhook configuration to its ring.
func webhooksToRing(_ context.Context, o client.Object) []reconcile.Request {
	if name, ok := strings.CutPrefix(o.GetName(), webhookPrefix); ok {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	}
	return nil
}

// UsersOf returns a function that maps a CRD to the rings that include its resource. The reader must
// use a cache.
func UsersOf(cached client.Reader) handler.MapFunc {
	return func(ctx context.Context, crd client.Object) (all []reconcile.Request) {
		rings := &v1alpha1.ClusterRingList{}
		if err := cached.List(ctx, rings); err != nil {
			logf.FromContext(ctx).Error(err, "Listing rings from the cache failed")
			return nil
		}
		for i := range rings.Items {
			matches := func(r v1alpha1.GroupResource) bool { return r.Resource+"."+r.Group == crd.GetName() }
			if slices.ContainsFunc(resourcesOf(&rings.Items[i]), matches) {
				all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Name: rings.Items[i].Name}})
			}
		}
		return all
	}
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
		_, err := c.keepFence(ctx, r, nil)
		return reconcile.Result{}, err
	}
	f, err := c.Resources.of(ctx, r)
	if err != nil {
		return reconcile.Result{}, err
	}
	after, err := c.keep(ctx, r, f)
	check, failed := c.keepFence(ctx, r, f.resources) // it does not depend on the others
	delay := earliest(after, f.recheck, check)
	if err = errors.Join(err, failed); err == nil || delay == 0 {
		return reconcile.Result{RequeueAfter: delay}, err
	}
	logf.FromContext(ctx).Error(err, "Installing policies failed", "ring", r.Name)
	return reconcile.Result{RequeueAfter: min(delay, failingPeriod)}, nil // with the error, the check would wait for the longest backoff
}

// earliest returns the shortest of some delays that is not zero, or zero.
func earliest(delays ...time.Duration) (first time.Duration) {
	for _, d := range delays {
		if d > 0 && (first == 0 || d < first) {
			first = d
		}
	}
	return first
}

// keep installs the policies or webhooks for the served resources and reports the result. It
// returns the delay before the next check whether the API server applies them, or zero if no check
// is needed.
func (c *Controller) keep(ctx context.Context, r *v1alpha1.ClusterRing, f found) (after time.Duration, err error) {
	missing := f.missing()
	if len(f.resources) == 0 {
		c.forget(r.Name)
		c.report(r.Name, metav1.ConditionFalse, waiting, missing)
		if err := c.removeWebhooks(ctx, r.Name); err != nil {
			return 0, err
		}
		return 0, c.removePolicies(ctx, r.Name)
	}
	revision, written, err := c.install(ctx, r, f.resources)
	if err != nil {
		return c.fail(r.Name, err)
	}
	if written {
		logf.FromContext(ctx).Info("Installed admission", "ring", r.Name, "mode", c.Mode, "revision", revision)
	}
	p := c.prove(ctx, r, revision, written)
	switch {
	case len(f.waiting) > 0:
		c.report(r.Name, metav1.ConditionFalse, waiting, missing)
	case p.applied && c.Mode == ByWebhook:
		c.report(r.Name, metav1.ConditionTrue, webhooksServe, p.note)
	case p.applied:
		c.report(r.Name, metav1.ConditionTrue, installed, p.note)
	default:
		c.report(r.Name, metav1.ConditionFalse, installing, p.note)
	}
	return c.recheckAfter(p), nil
}

// fail reports why policies are not installed, unless a retry is expected to succeed.
func (c *Controller) fail(name string, err error) (after time.Duration, _ error) {
	if isRace(err) {
		return probePeriod, nil // the cache will catch up
	}
	c.forget(name)
	c.report(name, metav1.ConditionFalse, installFailed, err.Error())
	if errors.Is(err, errForeign) {
		return 0, nil // an event follows when the foreign object is deleted
	}
	return 0, err
}

// isRace reports whether a write failed because the cache is behind.
func isRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// self returns the user name under which the API server authenticates this process.
func (c *Controller) self(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.user != "" {
		return c.user, nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("looking up the user name of this process: %w", err)
	}
	c.user = review.Status.UserInfo.Username
	return c.user, nil
}

func (c *Controller) report(name string, status metav1.ConditionStatus, reason, message string) {
	c.Reports.Change(name, func(r *ring.Report) {
		r.Set(metav1.Condition{Type: condition, Status: status, Reason: reason, Message: message})
	})
}
