// Package protection keeps a Node that is being deleted until its last labels are stored, even
// while no watcher runs.
//
// It adds a finalizer to every Node. When a Node is being deleted and no other finalizer is left,
// the package stores the Node's labels and removes the finalizer, upon which the API server deletes
// the Node.
//
// protection.go contains the controller, release.go releases one Node, and late.go handles edits
// during the release.
package protection

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/processor/job"
	"nodekeeper.dev/internal/processor/telemetry"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
)

// Finalizer keeps a Node that is being deleted until its last labels are stored. The write that
// removes it is conditional on the resourceVersion whose labels were stored. The API server deletes
// the Node in a second step, which has no precondition (Store.deleteWithoutFinalizers in
// k8s.io/apiserver/pkg/registry/generic/registry/store.go); lateEdits catches an edit between the
// two.
const Finalizer = nodes.Finalizer

// UnprotectCommand removes the finalizer from every Node, also when no processor runs. It keeps
// other finalizers.
const UnprotectCommand = `kubectl get nodes -o name | xargs kubectl patch -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + Finalizer + `"]}}'`

// Controller adds the finalizer to every Node. All fields except Rewind are required.
type Controller struct {
	Nodes    *nodes.Nodes
	Records  *records.Records
	Queue    *queue.Queue
	Index    *queue.Index
	Applier  *apply.Applier
	Observer *telemetry.Observer
	Locks    *nodelock.Locker
	// Cache has all Nodes.
	Cache nodes.Cache
	// Rewind reports which events are unconfirmed and receives the proof that an event was lost in an
	// etcd restore. It may be nil.
	Rewind *rewind.Detector
	// Workers is the number of nodes that are processed concurrently.
	Workers int

	late lateEdits
}

// Register adds the controller to the manager, and registers its metric.
func (c *Controller) Register(mgr manager.Manager, metrics prometheus.Registerer) error {
	if err := metrics.Register(newWaiting(c.Cache)); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	protection, err := job.NewController(mgr, "protection", c.Workers, c.reconcile)
	if err != nil {
		return err
	}
	if err := protection.Watch(source.Func(c.watchNodes)); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	// The deletion of a node may wait until its record is corrected.
	if err := protection.Watch(source.Kind(mgr.GetCache(), &corev1.ConfigMap{}, handler.TypedEnqueueRequestsFromMapFunc(c.recordedNode))); err != nil {
		return fmt.Errorf("watching records: %w", err)
	}
	return nil
}

// WarnOfProtected logs whether there are protected Nodes. Call it in a processor that does not
// protect Nodes: when they are deleted, they wait until the finalizer is removed.
func WarnOfProtected(ctx context.Context, all *nodes.Nodes) error {
	log := logf.FromContext(ctx)
	count := 0
	err := all.Each(ctx, func(n *metav1.PartialObjectMetadata) error {
		if slices.Contains(n.Finalizers, Finalizer) {
			count++
		}
		return nil
	})
	switch {
	case err != nil: // without protection a processor may lack the permission to list Nodes
		log.V(1).Info("Skipped the check for protected nodes", "reason", err.Error())
	case count > 0:
		log.Info("Found protected nodes: their deletion waits for a processor with --protect=finalizer",
			"nodes", count, "ifNoneIs", UnprotectCommand)
	}
	return nil
}

// watchNodes enqueues Nodes whose finalizer must be added or removed, or that may have been edited
// while their finalizer was removed. Those of the first list come after the others. The work may
// begin before all of them are enqueued.
func (c *Controller) watchNodes(ctx context.Context, work job.Requests) error {
	_, err := c.Cache.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			c.observe(nil, nodes.Delivered(obj), work, isInInitialList)
		},
		UpdateFunc: func(before, after any) { c.observe(nodes.Delivered(before), nodes.Delivered(after), work, false) },
		DeleteFunc: func(obj any) {
			n := nodes.Delivered(obj)
			if n == nil {
				return
			}
			_, missed := obj.(toolscache.DeletedFinalStateUnknown)
			stored, err := c.Records.Cached(ctx, n.Name)
			if err != nil {
				logf.FromContext(ctx).V(1).Info("Assumed that a deleted node has no record", "node", n.Name, "reason", err.Error())
			}
			if c.late.end(n, stored.Record, !missed); c.late.has(n.Name) {
				work.Add(job.Request(n.Name))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	return nil
}

func (c *Controller) observe(before, after *nodeview.Node, work job.Requests, isInInitialList bool) {
	if after == nil {
		return
	}
	c.late.observe(before, after)
	if !waitsUnselected(after) && !lacksFinalizer(after) && !nodes.WaitsForFinalizer(after) && !c.late.has(after.Name) {
		return
	}
	priority := 0
	if isInInitialList && !after.IsDeleting() {
		priority = handler.LowPriority
	}
	job.Add(work, after.Name, priority)
}

func (c *Controller) recordedNode(_ context.Context, cm *corev1.ConfigMap) []reconcile.Request {
	if cm.Namespace != c.Records.Namespace {
		return nil
	}
	return []reconcile.Request{job.Request(cm.Name)}
}

// lacksFinalizer reports whether the finalizer must be added to a Node. It cannot be added to a
// Node that is being deleted.
func lacksFinalizer(n *nodeview.Node) bool {
	// A node named like the root CA ConfigMap cannot have a record, so its labels could never be
	// stored.
	return !n.IsDeleting() && !n.Unselected && n.Name != record.RootCAName && !slices.Contains(n.Finalizers, Finalizer)
}

// waitsUnselected reports whether a Node that is not selected waits for the finalizer. An unselected
// Node that is not being deleted keeps its finalizer: during a rollout another processor, with
// another selector, would add it again.
func waitsUnselected(n *nodeview.Node) bool {
	return n.IsDeleting() && n.Unselected && slices.Contains(n.Finalizers, Finalizer)
}

// reconcile adds the finalizer to a live Node, and removes it from a Node that waits for that.
func (c *Controller) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	n, err := c.Cache.Get(req.Name)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading node %q: %w", req.Name, err)
	}
	isThere := n != nil
	if isThere && waitsUnselected(n) {
		return reconcile.Result{}, c.unprotect(ctx, n)
	}
	if isThere && lacksFinalizer(n) {
		if err := c.protect(ctx, n); err != nil {
			return reconcile.Result{}, err
		}
	}
	waits := isThere && nodes.WaitsForFinalizer(n)
	if !waits && !c.late.has(req.Name) { // or it is gone: its events enqueue it again
		if len(c.Index.Pending(req.Name)) == 0 {
			c.Locks.Forget(req.Name)
		}
		return reconcile.Result{}, nil
	}
	result, err := job.UnderLock(ctx, c.Locks, req.Name, func(ctx context.Context) error {
		if err := c.saveLate(ctx, req.Name); err != nil {
			return err
		}
		return c.release(ctx, req.Name)
	})
	if err != nil {
		c.Observer.Failed(err)
		if waits {
			c.Observer.Warn(nodes.Reference(n.Name, n.UID), reasons.DeletionWaits, "Save",
				"The deletion of this node waits until its labels are saved, retrying: %v", err)
		}
	}
	return result, err
}
