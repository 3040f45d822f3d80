package watcher

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// noteTime is how long a watcher waits for a restore to be noted, before it records what it saw of it: the note says the same. It is
// written milliseconds later, and may be seen seconds later where a whole fleet returns. As the turns, it counts from the event
// and is shorter than the usual head start.
const noteTime = 4 * time.Second

// Stored is a cache of the transactions and the records, as [Strip] leaves them. It may be behind: what it shows is
// enough to know that something was stored, and never that something was not.
type Stored struct {
	Reader   client.Reader
	Informer Informer
}

// Strip returns a transform of a cache: it takes off the ConfigMaps of both namespaces what says no more than that they are stored.
// One that is no readable transaction or record stays such.
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

// storedHandler lets a node with pending transactions be looked at again when something of it was stored.
func (w *Watcher) storedHandler() toolscache.ResourceEventHandler {
	tell := func(obj any) {
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return // the informer holds nothing else
		}
		node := cm.Name
		if cm.Namespace == w.queue.Namespace {
			t, err := txn.Parse(cm)
			if err != nil {
				return // no transaction: processors see to it
			}
			node = t.Node
		}
		if _, count := w.oldest(node); count > 0 {
			w.work.Add(node)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, after any) { tell(after) }}
}

// leave says how long to leave the first of a node's pending transactions to others, and whether it is known to be stored, or to
// have its effect stored.
func (w *Watcher) leave(ctx context.Context, t txn.Transaction, pending int) (left time.Duration, isKnown bool) {
	saved := w.cachedRecord(ctx, t.Node)
	isStored := saved != nil && preserve.Applied(t, *saved) || w.isQueued(ctx, t)
	// In doubt the cache may hold what never happened. What is in the queue all the same is found there by its name.
	if isStored && !w.history.InDoubt() {
		w.turns.Done(t.Node, time.Now())
		return 0, true
	}
	if w.isStopping.Load() {
		return 0, false
	}
	left = w.turns.Wait(t.Node, t.ResourceVersion+"/"+string(t.Type), t.ObservedAt, time.Now())
	if saved != nil && pending == 1 && preserve.RestoredUnnoted(t, *saved) {
		left = max(left, time.Until(t.ObservedAt.Add(noteTime)))
	}
	return left, false
}

// isQueued says whether the transaction was seen in the queue.
func (w *Watcher) isQueued(ctx context.Context, t txn.Transaction) bool {
	cm := w.cached(ctx, w.queue.Namespace, t.Name())
	if cm == nil {
		return false
	}
	existing, err := txn.Parse(cm)
	return err == nil && existing.IsSameEvent(t)
}

// cachedRecord returns a record of the node without its labels, nil if none was seen that can be read.
func (w *Watcher) cachedRecord(ctx context.Context, node string) *record.Record {
	cm := w.cached(ctx, w.metadataNamespace, node)
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
func (w *Watcher) cached(ctx context.Context, namespace, name string) *corev1.ConfigMap {
	if w.known.Informer == nil || !w.known.Informer.HasSynced() {
		return nil
	}
	cm := &corev1.ConfigMap{}
	if err := w.known.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, cm); err != nil {
		return nil // not seen yet: nothing is concluded from that
	}
	return cm
}
