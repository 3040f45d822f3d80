package watcher

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Stored has the transactions and the records that an informer of their ConfigMaps has delivered,
// each parsed once. It may be stale: an object in it proves that something was stored, but a missing
// one proves nothing. It is safe for concurrent use.
type Stored struct {
	transactions, records string // namespaces

	mu      sync.RWMutex
	objects map[types.NamespacedName]*storedObject
}

// NewStored returns an empty Stored for the transactions and the records in these namespaces.
func NewStored(transactionNamespace, metadataNamespace string) *Stored {
	return &Stored{transactions: transactionNamespace, records: metadataNamespace, objects: map[types.NamespacedName]*storedObject{}}
}

// storedObject is what a watcher keeps of a ConfigMap.
type storedObject struct {
	key             types.NamespacedName
	uid             types.UID
	resourceVersion string
	// transaction is a transaction without its labels, or nil.
	transaction *txn.Transaction
	// record is a record without its labels, or nil.
	record *record.Record
}

var _ metav1.ObjectMetaAccessor = (*storedObject)(nil)

// GetObjectMeta returns what an informer needs of an object.
func (o *storedObject) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: o.key.Namespace, Name: o.key.Name, UID: o.uid, ResourceVersion: o.resourceVersion}
}

// Transform is the transform of the informer: it parses a ConfigMap, and drops the rest. An unreadable
// transaction or record stays unreadable.
func (s *Stored) Transform(obj any) (any, error) {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return obj, nil
	}
	o := &storedObject{key: types.NamespacedName{Namespace: cm.Namespace, Name: cm.Name}, uid: cm.UID, resourceVersion: cm.ResourceVersion}
	switch cm.Namespace {
	case s.transactions:
		if t, err := txn.Parse(cm); err == nil {
			o.transaction = &txn.Transaction{Type: t.Type, Node: t.Node, UID: t.UID, Revision: t.Revision, FoundsRecord: t.FoundsRecord}
		}
	case s.records:
		if r, err := record.Parse(cm); err == nil {
			o.record = &record.Record{Node: r.Node, Revision: r.Revision, Source: r.Source, Restored: r.Restored, Identity: r.Identity, Ended: r.Ended, Floor: r.Floor}
		}
	}
	return o, nil
}

func (s *Stored) get(key types.NamespacedName) *storedObject {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[key]
}

// Record returns the record of a node without its labels, or nil if there is no readable one.
func (s *Stored) Record(node string) *record.Record {
	if o := s.get(types.NamespacedName{Namespace: s.records, Name: node}); o != nil {
		return o.record
	}
	return nil
}

// Pending returns the hashes of the nodes with objects that have the name of a transaction, see
// [txn.NodeHash].
func (s *Stored) Pending() map[string]bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	hashes := map[string]bool{}
	for key := range s.objects {
		if hash, _, ok := txn.SplitName(key.Name); ok && key.Namespace == s.transactions {
			hashes[hash] = true
		}
	}
	return hashes
}

// Handler returns the handler of the informer, which must be its only one. It calls changed with each
// node whose transactions or record changed, and taken with the node hash of each other object that
// has, or had, the name of a transaction.
func (s *Stored) Handler(changed, taken func(string)) toolscache.ResourceEventHandler {
	notify := func(o *storedObject) {
		switch hash, _, isNamed := txn.SplitName(o.key.Name); {
		case o.key.Namespace != s.transactions:
			changed(o.key.Name)
		case o.transaction != nil:
			changed(o.transaction.Node)
		case isNamed: // processors quarantine it
			taken(hash)
		}
	}
	set := func(obj any) {
		if o, ok := obj.(*storedObject); ok { // the informer holds nothing else
			s.mu.Lock()
			s.objects[o.key] = o
			s.mu.Unlock()
			notify(o)
		}
	}
	remove := func(obj any) {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if o, ok := obj.(*storedObject); ok {
			s.mu.Lock()
			delete(s.objects, o.key)
			s.mu.Unlock()
			notify(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: set, UpdateFunc: func(_, after any) { set(after) }, DeleteFunc: remove}
}

// storedEvents finds what others have stored.
type storedEvents struct {
	stored  *Stored // nil: unknown
	history *rewind.Detector
	bound   labels.MachineBound
	// delivered returns the latest revision that the watch of Nodes has delivered, zero if unknown.
	delivered func() revision.Revision
}

var _ StoredEvents = (*storedEvents)(nil)

// Has reports whether a transaction is in the queue, or its effect in the record. While the
// cluster's history is unconfirmed, there may be objects that no longer exist, so the result is
// false. A transaction that is in the queue anyway is then found by its name when it is
// written.
func (s *storedEvents) Has(ctx context.Context, t txn.Transaction) bool {
	if s.stored == nil || s.history.Unconfirmed(t.ObservedAt) {
		return false
	}
	saved := s.stored.Record(t.Node)
	if (saved == nil || !preserve.Applied(t, *saved, s.bound) || s.isAhead(saved)) && !s.queued(t) {
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
func (s *storedEvents) awaits(t txn.Transaction, isLast bool) bool {
	if s.stored == nil {
		return false
	}
	saved := s.stored.Record(t.Node)
	return saved != nil && (isLast && awaitsNote(t, *saved) || preserve.Applied(t, *saved, s.bound) && s.isAhead(saved))
}

// awaitsNote reports whether a transaction contains the result of a restore that a processor has
// yet to note in the record. A node that was created with its labels got them from the webhook,
// whose restore is noted only after its transaction is stored.
func awaitsNote(t txn.Transaction, saved record.Record) bool {
	return t.Type != txn.Added && preserve.RestoredUnnoted(t, saved)
}

// queued reports whether the transaction is in the queue.
func (s *storedEvents) queued(t txn.Transaction) bool {
	existing := s.stored.get(types.NamespacedName{Namespace: s.stored.transactions, Name: t.Name()})
	return existing != nil && existing.transaction != nil && existing.transaction.IsSameEvent(t)
}

// watches reports whether changes are known.
func (s *storedEvents) watches() bool { return s.stored != nil }

// until returns how long it is until a given time after since.
func until(since time.Time, d time.Duration) time.Duration { return max(0, time.Until(since.Add(d))) }
