package watcher

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/txn"
)

// Observer makes transactions of what a watch shows. It is pure.
type Observer struct {
	// RecordUpdates says whether changes of labels are recorded too.
	RecordUpdates bool
}

// Observe returns the transactions of one event, in order: before is the last state of the
// node that was seen, after the new one; nil means that the node was or is not there.
func (o Observer) Observe(before, after *metav1.PartialObjectMetadata, now time.Time) []txn.Transaction {
	switch {
	case before == nil && after == nil:
		return nil
	case before == nil:
		return []txn.Transaction{o.transaction(txn.Added, after, now)}
	case after == nil:
		return []txn.Transaction{o.transaction(txn.Deleted, before, now)}
	case before.UID != after.UID:
		// The watch missed the end of one incarnation and the start of the next.
		return []txn.Transaction{o.transaction(txn.Deleted, before, now), o.transaction(txn.Added, after, now)}
	case o.RecordUpdates && !sameLabels(before, after):
		return []txn.Transaction{o.transaction(txn.Updated, after, now)}
	}
	return nil
}

func (o Observer) transaction(typ txn.Type, n *metav1.PartialObjectMetadata, now time.Time) txn.Transaction {
	t := txn.Of(typ, n)
	t.ObservedAt = now
	t.FoundsRecord = typ == txn.Added && o.RecordUpdates
	return t
}

// sameLabels compares the labels of two states of a node; the marker does not take part.
func sameLabels(a, b *metav1.PartialObjectMetadata) bool {
	ownA, _ := labels.Split(a.Labels)
	ownB, _ := labels.Split(b.Labels)
	return maps.Equal(ownA, ownB)
}
