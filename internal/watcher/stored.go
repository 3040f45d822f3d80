package watcher

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Stored is a cache of the transactions and the records, as [Strip] leaves them. It may be stale:
// an object in it proves that something was stored, but a missing one proves nothing.
type Stored struct {
	Reader   client.Reader
	Informer Informer
}

// Strip returns a transform of a cache. It removes everything from the ConfigMaps of both
// namespaces that does not serve to identify them. An unreadable transaction or record stays
// unreadable.
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

// storedEvents finds what others have stored in the cache.
type storedEvents struct {
	cache                                   Stored
	history                                 *rewind.Detector
	transactionNamespace, metadataNamespace string
	bound                                   labels.MachineBound
	// delivered returns the latest revision that the watch of Nodes has delivered, zero if unknown.
	delivered func() revision.Revision
}

var _ StoredEvents = (*storedEvents)(nil)

// Has reports whether a transaction is in the queue, or its effect in the record. While the
// cluster's history is unconfirmed, the cache may contain objects that no longer exist, so the
// result is false. A transaction that is in the queue anyway is then found by its name when it is
// written.
func (s *storedEvents) Has(ctx context.Context, t txn.Transaction) bool {
	if s.history.Unconfirmed(t.ObservedAt) {
		return false
	}
	saved := s.record(ctx, t.Node)
	if (saved == nil || !preserve.Applied(t, *saved, s.bound) || s.isAhead(saved)) && !s.queued(ctx, t) {
		return false
	}
	logf.FromContext(ctx).V(1).Info("Skipped an event that is already stored",
		"node", t.Node, "type", t.Type, "resourceVersion", t.Revision, "uid", t.UID)
	return true
}

// isAhead reports whether a record is later than the Nodes that this watcher has seen. Then it
// proves nothing: either the watch of Nodes is behind, which shows soon, or the record is of an
// earlier history.
func (s *storedEvents) isAhead(saved *record.Record) bool {
	delivered := s.delivered()
	return !delivered.IsZero() && preserve.Ahead(saved, delivered)
}

// awaits reports whether something is about to arrive that makes a transaction unnecessary. isLast
// reports whether it is the last event of its node.
func (s *storedEvents) awaits(ctx context.Context, t txn.Transaction, isLast bool) bool {
	saved := s.record(ctx, t.Node)
	return saved != nil && (isLast && awaitsNote(t, *saved) || preserve.Applied(t, *saved, s.bound) && s.isAhead(saved))
}

// awaitsNote reports whether a transaction contains the result of a restore that a processor has
// yet to note in the record. A node that was created with its labels got them from the webhook,
// whose restore is noted only after its transaction is stored.
func awaitsNote(t txn.Transaction, saved record.Record) bool {
	return t.Type != txn.Added && preserve.RestoredUnnoted(t, saved)
}

// queued reports whether the transaction is in the queue.
func (s *storedEvents) queued(ctx context.Context, t txn.Transaction) bool {
	cm := s.cached(ctx, s.transactionNamespace, t.Name())
	if cm == nil {
		return false
	}
	existing, err := txn.Parse(cm)
	return err == nil && existing.IsSameEvent(t)
}

// record returns the record of a node without its labels, or nil if the cache has no readable one.
func (s *storedEvents) record(ctx context.Context, node string) *record.Record {
	cm := s.cached(ctx, s.metadataNamespace, node)
	if cm == nil {
		return nil
	}
	r, err := record.Parse(cm)
	if err != nil {
		return nil
	}
	return r
}

// cached returns a ConfigMap from the cache, or nil if it is not there.
func (s *storedEvents) cached(ctx context.Context, namespace, name string) *corev1.ConfigMap {
	if s.cache.Informer == nil || !s.cache.Informer.HasSynced() {
		return nil
	}
	cm := &corev1.ConfigMap{}
	if err := s.cache.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, cm); err != nil {
		return nil // proves nothing: it may not have arrived yet
	}
	return cm
}

// watches reports whether handler is called with changes.
func (s *storedEvents) watches() bool { return s.cache.Informer != nil }

// handler calls changed with each node whose transactions or record changed, and taken with the
// node hash of each other object that has, or had, the name of a transaction.
func (s *storedEvents) handler(changed, taken func(string)) toolscache.ResourceEventHandler {
	notify := func(obj any) {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return // the informer holds nothing else
		}
		node := cm.Name
		if cm.Namespace == s.transactionNamespace {
			t, err := txn.Parse(cm)
			if err != nil { // processors quarantine it
				if hash, _, ok := txn.SplitName(cm.Name); ok {
					taken(hash)
				}
				return
			}
			node = t.Node
		}
		changed(node)
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: notify, UpdateFunc: func(_, after any) { notify(after) }, DeleteFunc: notify}
}

// until returns how long it is until a given time after since.
func until(since time.Time, d time.Duration) time.Duration { return max(0, time.Until(since.Add(d))) }
