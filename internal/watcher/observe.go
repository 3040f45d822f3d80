package watcher

import (
	"maps"
	"time"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// Observer turns watch events into transactions. It is pure. A node that is not selected, see
// [nodeview.Node].Unselected, has none. A node that becomes selected counts as added, and one that
// is no longer selected as one whose watch ended before.
type Observer struct {
	// RecordUpdates enables recording of label changes.
	RecordUpdates bool
	// MachineBound selects the labels that belong to a machine.
	MachineBound labels.MachineBound
}

// Observe returns the transactions of one event, in order. before is the last state of the node
// that was seen, after the new one; nil means that the node did or does not exist.
func (o Observer) Observe(before, after *nodeview.Node, now time.Time) []txn.Transaction {
	if before != nil && after != nil && before.UID != after.UID {
		// The watch missed the end of one incarnation and the start of the next.
		return append(o.Observe(before, nil, now), o.Observe(nil, after, now)...)
	}
	was, is := before != nil && !before.Unselected, after != nil && !after.Unselected
	switch {
	case is && !was:
		return []txn.Transaction{o.transaction(txn.Added, after, now)}
	case was && after == nil:
		return []txn.Transaction{o.transaction(txn.Deleted, before, now)}
	case was && is && becameGated(before, after): // a processor must remove the taint
		return []txn.Transaction{o.change(txn.Added, before, after, now)}
	case was && is && o.RecordUpdates && !maps.Equal(before.Labels, after.Labels):
		return []txn.Transaction{o.change(txn.Updated, before, after, now)}
	}
	return nil
}

// ObserveAfterGap is Observe for two states with a gap in the watch between them. If the node is
// gated in both, the startup taint may have been removed and added again in between.
func (o Observer) ObserveAfterGap(before, after *nodeview.Node, now time.Time) []txn.Transaction {
	if before != nil && after != nil && before.UID == after.UID && before.Revision != after.Revision &&
		!before.Unselected && !after.Unselected && after.Marker == labels.Pending {
		return []txn.Transaction{o.change(txn.Added, before, after, now)}
	}
	return o.Observe(before, after, now)
}

// becameGated reports whether an existing Node was gated: an autoscaler may write the labels and
// taints of its template onto the Node after the kubelet has created it.
func becameGated(before, after *nodeview.Node) bool {
	return after.Marker == labels.Pending && before.Marker != labels.Pending
}

// NeedsCheck reports whether two states of a node with a gap in the watch between them may hide a
// change, although their labels are equal: a restore and an edit that reverted it. The node must
// then be compared with its record, see [Observer.CatchUp].
func (o Observer) NeedsCheck(before, after *nodeview.Node) bool {
	return o.RecordUpdates && before != nil && after != nil && before.UID == after.UID && !after.Unselected &&
		before.Revision != after.Revision && maps.Equal(before.Labels, after.Labels)
}

// change returns a transaction of an existing Node, including the ownership changes of its labels.
func (o Observer) change(typ txn.Type, before, after *nodeview.Node, now time.Time) txn.Transaction {
	t := o.transaction(typ, after, now)
	t.Withdrawn, t.Overruled = nodeview.Withdrawn(before, after), nodeview.Removed(before, after)
	// The processor must identify the machine that got labels of its own while it exists. An addition
	// is urgent anyway.
	t.AtOnce = typ == txn.Updated && preserve.GainsBound(before.Labels, t.Labels, t.Machine, o.MachineBound)
	return t
}

func (o Observer) transaction(typ txn.Type, n *nodeview.Node, now time.Time) txn.Transaction {
	t := txn.Of(typ, n)
	t.ObservedAt = now
	t.FoundsRecord = typ == txn.Added && o.RecordUpdates
	return t
}
