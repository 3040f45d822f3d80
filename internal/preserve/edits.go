package preserve

import (
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// isStranded reports whether an update is of an incarnation that a record does not follow, although
// it follows another one, and the update is later than all that it has. What users have given to a
// name follows none, and is restored at their request.
func isStranded(t txn.Transaction, r *record.Record) bool {
	return t.Type == txn.Updated && r != nil && !r.Floor && followed(*r) != "" && !Owned(*r, t.UID, t.Marker) && !t.RestoredFrom().After(r.Revision) &&
		t.Revision.After(r.Revision) && t.Revision.After(r.Restored.Revision)
}

// mayBeStranded reports whether an update in a queue may be stranded when it is decided: an event of
// another incarnation before it may change which one the record follows.
func mayBeStranded(queue []txn.Transaction, r *record.Record) bool {
	for i, t := range queue {
		isOther := func(earlier txn.Transaction) bool { return earlier.UID != t.UID }
		if isStranded(t, r) || t.Type == txn.Updated && slices.ContainsFunc(queue[:i], isOther) {
			return true
		}
	}
	return false
}

// restoredFrom returns the revision of the record that was restored onto a Node, see
// [txn.RestoredFrom].
func restoredFrom(n *nodeview.Node) revision.Revision {
	return txn.RestoredFrom(n.Marker, n.IsRestored(), n.Revision)
}

// editedSince returns the keys that users have set or removed on a Node since it was created. t is
// a former state of it: what differs was edited, even if managedFields do not show that. An
// annotation that t does not have proves nothing, as its watcher may not keep annotations. Neither
// does a taint, whose setter is unknown, or which agents have set.
func editedSince(t txn.Transaction, n *nodeview.Node, policy labels.Policy) labels.Keys {
	if n.IsRestored() && n.Marker != t.Marker {
		return n.Edited // what else differs may be from the restore that set the marker since
	}
	byUsers := func(of labels.Side, key string) bool {
		return policy.Has(key) && !of.Machine.Has(key) && !of.Unclear.Has(key)
	}
	before, after := sideOf(t), sideOfNode(n)
	return n.Edited.Union(labels.KeysOf(func(yield func(string) bool) {
		for key, value := range after.Labels {
			former, wasThere := before.Labels[key]
			isEdited := wasThere && former != value || !wasThere && labels.IsLabel(key)
			if isEdited && byUsers(after, key) && !yield(key) {
				return
			}
		}
		for key := range before.Labels {
			if _, isThere := n.Labels[key]; !isThere && byUsers(before, key) && !yield(key) {
				return
			}
		}
	}))
}
