package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// Finalizer keeps a Node that is being deleted until its last labels are stored. Nodes
// have it where processors protect them (Config.Protect). When the last finalizer is taken away, the API server
// deletes the Node. The write that takes it away is conditional on the resourceVersion whose labels were stored, but the delete
// is a second step of the API server's own, without a condition (Store.deleteWithoutFinalizers in
// k8s.io/apiserver/pkg/registry/generic/registry/store.go). What is edited between the two is learned from the watch, see lateEdits.
const Finalizer = "nodekeeper.dev/save-labels"

// UnprotectCommand takes the finalizer off every Node, also when no processor runs. Other finalizers stay.
const UnprotectCommand = `kubectl get nodes -o name | xargs kubectl patch -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + Finalizer + `"]}}'`

// addProtection makes the manager watch Nodes, metadata only, and keep the finalizer on each of them, if they are to be protected.
func (p *Processor) addProtection(mgr manager.Manager) error {
	if !p.isProtecting {
		if err := mgr.Add(manager.RunnableFunc(p.warnOfProtected)); err != nil {
			return fmt.Errorf("adding a look for protected nodes: %w", err)
		}
		return nil
	}
	protection, err := p.controller(mgr, "protection", p.reconcileProtection)
	if err != nil {
		return err
	}
	nodes := source.Kind(mgr.GetCache(), nodeMetadata(""), p.nodeHandler())
	if err := protection.Watch(nodes); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	// The deletion of a node may wait for its record to be mended.
	records := source.Kind(mgr.GetCache(), &corev1.ConfigMap{}, handler.TypedEnqueueRequestsFromMapFunc(p.recordedNode))
	if err := protection.Watch(records); err != nil {
		return fmt.Errorf("watching records: %w", err)
	}
	return nil
}

// warnOfProtected tells at the start of a processor that protects no Nodes if there are protected ones: when they are deleted,
// they wait for somebody who takes the finalizer away.
func (p *Processor) warnOfProtected(ctx context.Context) error {
	log := logf.FromContext(ctx)
	count := 0
	err := p.eachNode(ctx, func(n *metav1.PartialObjectMetadata) {
		if slices.Contains(n.Finalizers, Finalizer) {
			count++
		}
	})
	switch {
	case err != nil: // this processor may be without the right to list Nodes, which it does not need otherwise
		log.V(1).Info("Did not look for protected nodes", "reason", err.Error())
	case count > 0:
		log.Info("Found nodes that wait for a processor with --protect=finalizer when they are deleted, which this one is not",
			"nodes", count, "ifNoneIs", UnprotectCommand)
	}
	return nil
}

// nodeHandler asks for work on a Node that is to get the finalizer or to lose it, or that was perhaps edited when it lost it.
func (p *Processor) nodeHandler() handler.TypedEventHandler[*metav1.PartialObjectMetadata, reconcile.Request] {
	type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(n *metav1.PartialObjectMetadata, work requests) {
		work.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: n.Name}})
	}
	see := func(before, after *metav1.PartialObjectMetadata, work requests) {
		p.late.see(before, after)
		if lacksFinalizer(after) || waitsForFinalizer(after) || p.late.has(after.Name) {
			enqueue(after, work)
		}
	}
	return handler.TypedFuncs[*metav1.PartialObjectMetadata, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*metav1.PartialObjectMetadata], work requests) {
			see(nil, e.Object, work)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*metav1.PartialObjectMetadata], work requests) {
			see(e.ObjectOld, e.ObjectNew, work)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*metav1.PartialObjectMetadata], work requests) {
			if p.late.end(e.Object); p.late.has(e.Object.Name) {
				enqueue(e.Object, work)
			}
		},
	}
}

func (p *Processor) recordedNode(_ context.Context, cm *corev1.ConfigMap) []reconcile.Request {
	if cm.Namespace != p.records.namespace {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: cm.Name}}}
}

// lacksFinalizer says whether a Node is to get the finalizer. One that is being deleted cannot get any more.
func lacksFinalizer(n *metav1.PartialObjectMetadata) bool {
	// A node of that name cannot have a record, so its labels could never be stored.
	return n.DeletionTimestamp == nil && n.Name != record.RootCAName && !slices.Contains(n.Finalizers, Finalizer)
}

// waitsForFinalizer says whether our finalizer is all that keeps a Node. As long as there are others, its labels
// may change after they are stored.
func waitsForFinalizer(n *metav1.PartialObjectMetadata) bool {
	return n.DeletionTimestamp != nil && slices.Equal(n.Finalizers, []string{Finalizer})
}

// reconcileProtection gives a live Node the finalizer, and lets one go that waits for it.
func (p *Processor) reconcileProtection(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	n := nodeMetadata(req.Name)
	if err := p.records.cache.Get(ctx, req.NamespacedName, n); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading node %q: %w", req.Name, err)
	}
	if n.UID != "" && lacksFinalizer(n) {
		if err := p.protect(ctx, n); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !waitsForFinalizer(n) && !p.late.has(n.Name) { // or it is gone: the events of the Node bring it here again
		if !p.hasPending(ctx, n.Name) {
			p.locks.Forget(n.Name)
		}
		return reconcile.Result{}, nil
	}
	result, err := p.underLock(ctx, n.Name, func(ctx context.Context) error {
		if err := p.saveLate(ctx, n.Name); err != nil {
			return err
		}
		return p.letGo(ctx, n.Name)
	})
	if err != nil && waitsForFinalizer(n) {
		p.events.Eventf(nodeReference(n.Name, n.UID), nil, corev1.EventTypeWarning, "DeletionWaits", "Save", "%s",
			note("This node is not deleted before its labels are saved, trying again: %v", err))
	}
	return result, err
}

// protect gives a Node the finalizer, conditional on the Node that is in the cache.
func (p *Processor) protect(ctx context.Context, n *metav1.PartialObjectMetadata) error {
	err := p.setFinalizers(ctx, n, append(slices.Clone(n.Finalizers), Finalizer))
	if errors.Is(err, errStale) {
		return nil // the change that came between brings it here again
	}
	return err
}

// letGo stores the last labels of a Node that waits for it, and takes the finalizer away.
func (p *Processor) letGo(ctx context.Context, name string) error {
	for range maxAttempts {
		n, err := p.liveMetadata(ctx, name)
		if err != nil || n == nil || !waitsForFinalizer(n) {
			return err // another processor let it go, or it is another incarnation
		}
		if err := p.apply(ctx, txn.Of(txn.Deleted, n), &known{}, func(ctx context.Context) (bool, error) { return p.isUnchanged(ctx, n) }); err != nil {
			return err
		}
		err = p.setFinalizers(ctx, n, []string{})
		if errors.Is(err, errStale) {
			continue // perhaps there are later labels
		}
		if err == nil {
			logf.FromContext(ctx).Info("Let a node go whose labels are saved", "uid", n.UID, "resourceVersion", n.ResourceVersion)
		}
		return err
	}
	return fmt.Errorf("letting node %q go: %d conflicts in a row", name, maxAttempts)
}

// isUnchanged says whether a Node is as it was read.
func (p *Processor) isUnchanged(ctx context.Context, read *metav1.PartialObjectMetadata) (bool, error) {
	n, err := p.liveMetadata(ctx, read.Name)
	if err != nil || n == nil {
		return false, err
	}
	// If it is not, the write that takes the finalizer away fails too, and all begins anew.
	return n.UID == read.UID && n.ResourceVersion == read.ResourceVersion, nil
}

// setFinalizers is conditional on the uid and the resourceVersion of the Node that was read. It returns errStale if that is not
// the Node any more.
func (p *Processor) setFinalizers(ctx context.Context, read *metav1.PartialObjectMetadata, finalizers []string) error {
	if _, err := p.patchNode(ctx, read.Name, read.UID, read.ResourceVersion, map[string]any{"finalizers": finalizers}); err != nil {
		return fmt.Errorf("changing the finalizers of node %q: %w", read.Name, err)
	}
	return nil
}
