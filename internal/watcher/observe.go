package watcher

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/agents"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// Observer makes transactions of what a watch shows. It is pure. A node that is not looked after, see
// [nodeview.Selected], makes none. One that begins to be looked after is as one that has appeared, and
// one that ceases to be as one whose watch ended before.
type Observer struct {
	// RecordUpdates says whether changes of labels are recorded too.
	RecordUpdates bool
}

// Observe returns the transactions of one event, in order: before is the last state of the
// node that was seen, after the new one; nil means that the node was or is not there.
func (o Observer) Observe(before, after *metav1.PartialObjectMetadata, now time.Time) []txn.Transaction {
	if before != nil && after != nil && before.UID != after.UID {
		// The watch missed the end of one incarnation and the start of the next.
		return append(o.Observe(before, nil, now), o.Observe(nil, after, now)...)
	}
	was, is := before != nil && nodeview.Selected(before), after != nil && nodeview.Selected(after)
	switch {
	case is && !was:
		return []txn.Transaction{o.transaction(txn.Added, after, now)}
	case was && after == nil:
		return []txn.Transaction{o.transaction(txn.Deleted, before, now)}
	case was && is && o.RecordUpdates && !sameLabels(before, after):
		t := o.transaction(txn.Updated, after, now)
		t.Withdrawn, t.Overruled = agents.Withdrawn(before, after), agents.Removed(before, after)
		// The processor must read which machine has got restricted labels, while it is there.
		t.AtOnce = preserve.GainsRestricted(before.Labels, t.Labels, t.Machine)
		return []txn.Transaction{t}
	}
	return nil
}

// Doubtful reports whether two states of a node with a gap in the watch between them may hide a
// change, although both have the same labels: a restore may have come between, and an edit that has
// undone it. Then the node must be compared with its record, see [Observer.CatchUp].
func (o Observer) Doubtful(before, after *metav1.PartialObjectMetadata) bool {
	return o.RecordUpdates && before != nil && after != nil && before.UID == after.UID && nodeview.Selected(after) &&
		before.ResourceVersion != after.ResourceVersion && sameLabels(before, after)
}

func (o Observer) transaction(typ txn.Type, n *metav1.PartialObjectMetadata, now time.Time) txn.Transaction {
	t := txn.Of(typ, n)
	t.ObservedAt = now
	t.FoundsRecord = typ == txn.Added && o.RecordUpdates
	return t
}

// sameLabels compares the labels of two states of a node; the marker does not take part.
func sameLabels(a, b *metav1.PartialObjectMetadata) bool {
	own := len(b.Labels)
	if _, marked := b.Labels[labels.Marker]; marked {
		own--
	}
	for key, value := range a.Labels {
		if key == labels.Marker {
			continue
		}
		if other, ok := b.Labels[key]; !ok || other != value {
			return false
		}
		own--
	}
	return own == 0
}
