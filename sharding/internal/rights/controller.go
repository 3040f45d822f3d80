package rights

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ring"
)

const (
	// missingPeriod is the interval between checks while rights are missing. No event shows that
	// they have been granted.
	missingPeriod = 10 * time.Second
	// grantedPeriod is the interval between checks otherwise.
	grantedPeriod = 5 * time.Minute
	// reviewTimeout bounds the reviews of one ring: an authorizer may hang.
	reviewTimeout = 30 * time.Second
	// maxNamed is the number of missing rights that the condition lists.
	maxNamed = 10

	condition = "PermissionsGranted"
	granted   = "Granted"
	missing   = "Missing"
	failed    = "ReviewFailed"
)

// Controller reviews the rights of this process for each ring while it is the leader. All exported
// fields are required.
type Controller struct {
	// Client reads rings from a cache and creates SelfSubjectAccessReviews, which are not stored.
	Client  client.Client
	Reports *ring.Reports
	Dialect ring.Dialect
	// SyncPeriod bounds the delay between retries.
	SyncPeriod time.Duration
}

// Register adds the controller to the manager.
func (c *Controller) Register(mgr manager.Manager) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, c.SyncPeriod)
	err := builder.ControllerManagedBy(mgr).Named("rights").
		For(&v1alpha1.ClusterRing{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{RateLimiter: limiter}).Complete(c)
	if err != nil {
		return fmt.Errorf("adding the controller of rights: %w", err)
	}
	return nil
}

// Reconcile reviews the rights for one ring.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r := &v1alpha1.ClusterRing{}
	err := c.Client.Get(ctx, req.NamespacedName, r)
	if apierrors.IsNotFound(err) || err == nil && (r.DeletionTimestamp != nil || c.Dialect.Ignores(r)) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading ring %q: %w", req.Name, err)
	}
	within, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	missed, err := daemon.Missing(within, c.Client, Needed(&r.Spec))
	if err != nil {
		c.Reports.Change(r.Name, func(report *ring.Report) {
			report.Set(metav1.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: failed, Message: "the rights cannot be reviewed, retrying: " + err.Error()})
		})
		return reconcile.Result{}, fmt.Errorf("reviewing the rights for ring %q: %w", req.Name, err)
	}
	state := metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: granted, Message: "the sharder has all rights that it needs for this ring"}
	after := grantedPeriod
	if len(missed) > 0 {
		state.Status, state.Reason, state.Message = metav1.ConditionFalse, missing, describe(missed)
		after = missingPeriod
		logf.FromContext(ctx).V(1).Info("Rights are missing", "ring", r.Name, "count", len(missed))
	}
	c.Reports.Change(r.Name, func(report *ring.Report) { report.Set(state) })
	return reconcile.Result{RequeueAfter: after}, nil
}

// Needed returns the rights that the sharder needs for a ring. Without the right to get pods, new
// shards do not wait until their pods are ready; therefore it is not among them.
func Needed(spec *v1alpha1.ClusterRingSpec) []daemon.Permission {
	namespace, verbs := spec.Shards.Namespace, []string{"get", "list", "watch", "update", "patch", "delete"}
	if namespace == v1alpha1.AnyNamespace { // such Leases are only listed
		namespace, verbs = metav1.NamespaceAll, verbs[1:]
	}
	needed := daemon.Permissions("coordination.k8s.io", "leases", namespace, verbs...)
	isMain := map[v1alpha1.GroupResource]bool{}
	for _, main := range spec.Resources {
		isMain[main.GroupResource] = true
	}
	for _, r := range ring.Resources(spec) {
		if isMain[r] { // read before children without a shard get one
			needed = append(needed, daemon.Permissions(r.Group, r.Resource, "", "get")...)
		}
		needed = append(needed, daemon.Permissions(r.Group, r.Resource, "", "list", "watch", "patch")...)
	}
	return needed
}

func describe(missed []daemon.Permission) string {
	var named []string
	for _, one := range missed[:min(len(missed), maxNamed)] {
		named = append(named, one.String())
	}
	if more := len(missed) - maxNamed; more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("the sharder may not %s: bind the ClusterRole sharder-leases in the namespace of the shards, and create a ClusterRole with the label "+
		"sharding.nodekeeper.dev/aggregate-to-sharder=true for the resources of the ring", strings.Join(named, ", nor "))
}
