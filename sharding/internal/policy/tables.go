package policy

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ring"
)

// tableTimeout bounds each write of a table, so that one that hangs is reported.
const tableTimeout = 5 * time.Second

// Tables copies the table in the status of each ring to the ConfigMap that is the parameter of the
// ring's policies. The status is the truth: a copy that another client has changed or deleted is
// restored. It writes only while this process is the leader. All exported fields are required.
//
// New objects are placed by the copy, so a resync that began before the copy was written can miss
// some of them. A resync that a new table requires is followed by another one ten seconds later; if
// the copy can be out of date for longer, AdmissionInstalled is False meanwhile, which makes the
// assigner resync when it is True again.
type Tables struct {
	// Client writes tables, and reads rings and tables from a cache.
	Client client.Client
	// Reader reads rings from the API server. It must not use a cache.
	Reader  client.Reader
	Reports *ring.Reports
	Dialect ring.Dialect
	// Namespace is the namespace of the sharder.
	Namespace string
	// SyncPeriod bounds the delay between retries for a failing table.
	SyncPeriod time.Duration

	mu sync.Mutex
	// edited are the rings whose table another client had changed, until their status reports it.
	edited map[string]bool
}

// Register adds the controller to the manager.
func (c *Tables) Register(mgr manager.Manager) error {
	changed := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.ClusterRing)
		after, isRing := e.ObjectNew.(*v1alpha1.ClusterRing)
		return ok && isRing && !equality.Semantic.DeepEqual(before.Status.Table, after.Status.Table)
	}}
	err := builder.ControllerManagedBy(mgr).Named("table").
		For(&v1alpha1.ClusterRing{}, builder.WithPredicates(changed)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(toRing)).
		WithOptions(options(c.SyncPeriod)).Complete(c)
	if err != nil {
		return fmt.Errorf("copying tables: %w", err)
	}
	return nil
}

// Reconcile writes the table of one ring. The table of a deleted ring is removed by [Controller].
func (c *Tables) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r := &v1alpha1.ClusterRing{}
	if err := c.Client.Get(ctx, req.NamespacedName, r); err != nil {
		c.setEdited(req.Name, false)
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // it is not an error that the ring is gone
	}
	if r.DeletionTimestamp != nil || c.Dialect.Ignores(r) {
		return reconcile.Result{}, nil
	}
	err := c.write(ctx, r)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: probePeriod}, nil // the cache will catch up
	}
	if err != nil {
		err = fmt.Errorf("writing ConfigMap %s/%s: %w", c.Namespace, tablePrefix+r.Name, err)
		c.report(r.Name, installFailed, err.Error())
		return reconcile.Result{}, err
	}
	if !c.isEdited(r.Name) {
		c.report(r.Name, "", "")
		return reconcile.Result{}, nil
	}
	if meta.IsStatusConditionTrue(r.Status.Conditions, condition) { // the report has not reached it yet
		c.report(r.Name, installing, "another client had changed the table in ConfigMap "+c.Namespace+"/"+tablePrefix+r.Name)
	} else {
		c.setEdited(r.Name, false)
	}
	return reconcile.Result{RequeueAfter: probePeriod}, nil
}

// write creates the table of a ring, or updates it, conditional on the version in the cache.
func (c *Tables) write(ctx context.Context, r *v1alpha1.ClusterRing) error {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	want, is := Table(r, c.Namespace), &corev1.ConfigMap{}
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(want), is)
	if apierrors.IsNotFound(err) {
		return c.Client.Create(ctx, want) //nolint:wrapcheck // Reconcile adds the context
	}
	if err != nil {
		return err //nolint:wrapcheck // Reconcile adds the context
	}
	if !belongsTo(is, r.Name) {
		return errForeign
	}
	if generationOf(is) > generationOf(want) { // the cache of rings may be behind
		if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
			return client.IgnoreNotFound(err) //nolint:wrapcheck // Reconcile adds the context
		}
		want = Table(r, c.Namespace)
	}
	if isTable(is, want) {
		return nil
	}
	if generationOf(is) >= generationOf(want) && is.OwnerReferences[0].UID == r.UID {
		logf.FromContext(ctx).Info("Restored a table that another client had changed", "ring", r.Name)
		c.setEdited(r.Name, true)
	}
	if is.Immutable != nil && *is.Immutable { // the event of the deletion follows
		err := c.Client.Delete(ctx, is, client.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion})
		return client.IgnoreNotFound(err) //nolint:wrapcheck // Reconcile adds the context
	}
	after := is.DeepCopy() // with labels that policies may have set
	after.Data, after.BinaryData, after.OwnerReferences = want.Data, nil, want.OwnerReferences
	return client.IgnoreNotFound(c.Client.Update(ctx, after)) //nolint:wrapcheck // if it is gone, the event of its deletion follows
}

// report reports why policies may use another table than the one in the status. An empty reason
// means that they use that.
func (c *Tables) report(name, reason, message string) {
	c.Reports.Change(name, func(r *ring.Report) {
		r.Table = metav1.Condition{}
		if reason != "" {
			r.Table = metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason, Message: message}
		}
	})
}

func (c *Tables) isEdited(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.edited[name]
}

func (c *Tables) setEdited(name string, edited bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.edited == nil {
		c.edited = map[string]bool{}
	}
	if edited {
		c.edited[name] = true
	} else {
		delete(c.edited, name)
	}
}
