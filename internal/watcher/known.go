package watcher

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/txn"
)

// Stored is a cache of the transactions and the records, as [Strip] leaves them. It may be behind:
// what it shows is enough to know that something was stored, and never that something was not.
type Stored struct {
	Reader   client.Reader
	Informer Informer
}

// Strip returns a transform of a cache: it takes off the ConfigMaps of both namespaces what says no
// more than that they are stored. One that is no readable transaction or record stays such.
func Strip(transactionNamespace string) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return obj, nil
		}
		kept := labels.Marker
		isReadable := func() bool { _, err := record.Parse(cm); return err == nil }
		if cm.Namespace == transactionNamespace {
			kept = labels.TypeKey
			isReadable = func() bool { _, err := txn.Parse(cm); return err == nil }
		}
		data := map[string]string{}
		if isReadable() {
			data[kept] = cm.Data[kept]
		}
		cm.Data, cm.BinaryData, cm.ManagedFields, cm.Labels, cm.OwnerReferences = data, nil, nil, nil, nil
		return cm, nil
	}
}

// known knows from the cache what others have stored.
type known struct {
	stored                                  Stored
	history                                 *rewind.Detector
	transactionNamespace, metadataNamespace string
}

var _ Known = (*known)(nil)

// Has reports whether a transaction was seen in the queue, or its effect in the record. While it is
// unconfirmed that the cluster's history goes on, the cache may have what never happened. What is
// in the queue all the same is found there by its name.
func (k *known) Has(ctx context.Context, t txn.Transaction) bool {
	if k.history.Unconfirmed(t.ObservedAt) {
		return false
	}
	saved := k.record(ctx, t.Node)
	if (saved == nil || !preserve.Applied(t, *saved)) && !k.queued(ctx, t) {
		return false
	}
	logf.FromContext(ctx).V(1).Info("Skipped an event that is already stored",
		"node", t.Node, "type", t.Type, "resourceVersion", t.Revision, "uid", t.UID)
	return true
}

// awaitsNote reports whether a transaction shows what a restore did that a processor has yet to
// note in the record. A node that has appeared with its labels got them from the webhook: nobody
// notes that before its transaction is stored.
func (k *known) awaitsNote(ctx context.Context, t txn.Transaction) bool {
	if t.Type == txn.Added {
		return false
	}
	saved := k.record(ctx, t.Node)
	return saved != nil && preserve.RestoredUnnoted(t, *saved)
}

// queued reports whether the transaction was seen in the queue.
func (k *known) queued(ctx context.Context, t txn.Transaction) bool {
	cm := k.cached(ctx, k.transactionNamespace, t.Name())
	if cm == nil {
		return false
	}
	existing, err := txn.Parse(cm)
	return err == nil && existing.IsSameEvent(t)
}

// record returns a record of the node without its labels, nil if none was seen that can be read.
func (k *known) record(ctx context.Context, node string) *record.Record {
	cm := k.cached(ctx, k.metadataNamespace, node)
	if cm == nil {
		return nil
	}
	r, err := record.Parse(cm)
	if err != nil {
		return nil
	}
	return r
}

// cached returns a ConfigMap from the cache, nil if it is not there.
func (k *known) cached(ctx context.Context, namespace, name string) *corev1.ConfigMap {
	if k.stored.Informer == nil || !k.stored.Informer.HasSynced() {
		return nil
	}
	cm := &corev1.ConfigMap{}
	if err := k.stored.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, cm); err != nil {
		return nil // not seen yet: nothing is concluded from that
	}
	return cm
}

// watches reports whether handler is called with changes of what is stored.
func (k *known) watches() bool { return k.stored.Informer != nil }

// handler calls changed with each node of which something was stored or removed.
func (k *known) handler(changed func(node string)) toolscache.ResourceEventHandler {
	tell := func(obj any) {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return // the informer holds nothing else
		}
		node := cm.Name
		if cm.Namespace == k.transactionNamespace {
			t, err := txn.Parse(cm)
			if err != nil {
				return // not a transaction: processors quarantine it
			}
			node = t.Node
		}
		changed(node)
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, after any) { tell(after) }, DeleteFunc: tell}
}

// until returns how long it is until a time after another one.
func until(since time.Time, d time.Duration) time.Duration { return max(0, time.Until(since.Add(d))) }
