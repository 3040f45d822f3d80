package preserve

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

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
	return t.Type == txn.Updated && r != nil && !r.Floor && isUnrestored(t, *r)
}

// isUnrestored reports whether a transaction is of an incarnation that never got the labels of a
// record, and later than all that the record has.
func isUnrestored(t txn.Transaction, r record.Record) bool {
	return isOfAnother(t, r) && t.Revision.After(latest(r))
}

// latest returns the revision of the latest state that a record has.
func latest(r record.Record) revision.Revision {
	if r.Restored.Revision.After(r.Revision) {
		return r.Restored.Revision
	}
	return r.Revision
}

// isOfAnother reports whether a transaction is of an incarnation that never got the labels of a
// record.
func isOfAnother(t txn.Transaction, r record.Record) bool {
	return followed(r) != "" && !Owned(r, t.UID, t.Marker) && !t.RestoredFrom().After(r.Revision)
}

// isSavedInPart reports whether a record may have the edits of an end without those that only the
// watcher that recorded it has seen, because a processor stored the same end first.
func isSavedInPart(t txn.Transaction, r record.Record) bool {
	return !t.ByProcessor && isOfAnother(t, r) && t.Revision == latest(r)
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
// a former state of it, see [WithQueuedEdits]: what differs was edited, even if managedFields do not
// show that. An annotation that such a state does not have proves nothing, as its watcher may not
// keep annotations. Neither does a taint, whose setter is unknown, or which agents have set.
func editedSince(t txn.Transaction, n *nodeview.Node, policy labels.Policy) labels.Keys {
	latest := *cmp.Or(t.Latest, &t)
	isRestoredSince := n.IsRestored() && n.Marker != latest.Marker
	queued := t.Edited.Without(n.Machine).Without(stillUnclear(n.Unclear, n.Labels, latest)).Where(func(key string) bool {
		_, isThere := n.Labels[key]
		return policy.Has(key) && (labels.IsLabel(key) || !isThere)
	})
	if isRestoredSince { // what differs may be from that restore
		return n.Edited.Join(unchanged(queued, latest.Labels, n.Labels))
	}
	return n.Edited.Join(queued).Join(editedBetween(sideOf(latest), sideOfNode(n), n.Labels).Where(policy.Has))
}

// WithQueuedEdits sets two fields of the transactions of a node, oldest first, and returns them. Each
// but an end gets the keys that users have edited on its incarnation, as the states in the queue
// show one by one, and the latest of these states, with the keys that users have overruled since
// the first. The live Node does not show what users have set and removed again, nor what agents
// have taken over and withdrawn.
func WithQueuedEdits(queue []txn.Transaction) []txn.Transaction {
	type life struct {
		latest txn.Transaction
		edited labels.Keys
	}
	lives := map[types.UID]*life{}
	for _, t := range queue {
		l := &life{latest: t}
		if former := lives[t.UID]; former != nil && t.Ahead == former.latest.Ahead {
			l.latest.Unclear = stillUnclear(t.Unclear, t.Labels, former.latest)
			l.latest.Overruled = mergeOwnership(sideOf(former.latest), sideOf(l.latest), t.Withdrawn).Overruled
			l.edited = editedByStates(former.edited, former.latest, l.latest)
		}
		if t.Type != txn.Deleted {
			lives[t.UID] = l
		}
	}
	for i, t := range queue {
		if t.Type == txn.Deleted {
			continue
		}
		l := lives[t.UID]
		if queue[i].Edited = l.edited; t.Revision != l.latest.Revision {
			queue[i].Latest = &l.latest
		}
	}
	return queue
}

// editedByStates is [EditedSince] for two transactions. What agents have withdrawn was theirs in a
// state that the later transaction supersedes. A restore in between keeps what was edited before it,
// and is done again if the record has changed meanwhile.
func editedByStates(edited labels.Keys, before, after txn.Transaction) labels.Keys {
	if after.Restored && after.Marker != before.Marker {
		edited = unchanged(edited, before.Labels, after.Labels)
	} else {
		edited = edited.Join(editedBetween(sideOf(before), sideOf(after), after.Labels))
	}
	return edited.Without(after.Machine).Without(after.Unclear).Without(after.Withdrawn)
}

// stillUnclear returns the keys whose setter is unknown in a later state, without those that users had
// set to the same value before: a request by hand reports no setters, and the API server forgets them.
func stillUnclear(unclear labels.Keys, after map[string]string, before txn.Transaction) labels.Keys {
	byUsers := unclear.Same(before.Labels, after).Without(unclear.Taints()).Without(before.Machine).Without(before.Unclear)
	return unclear.Without(byUsers)
}

// unchanged returns the keys that both sets of labels have with the same value, or not at all.
func unchanged(keys labels.Keys, before, after map[string]string) labels.Keys {
	return keys.Without(labels.AllKeysOf(slices.Values(labels.Differing(before, after))))
}

// EditedSince returns the keys that users have edited on a Node by its later state, given those that
// they had edited by its earlier one. managedFields do not show labels that are removed, nor edits
// in the second in which the Node was created. If labels were restored in between, there are none.
func EditedSince(edited labels.Keys, before, after *nodeview.Node) labels.Keys {
	if after.IsRestored() && after.Marker != before.Marker {
		return ""
	}
	if !maps.Equal(before.Labels, after.Labels) {
		edited = edited.Union(editedBetween(wholeSideOf(before), sideOfNode(after), after.Labels).Bounded())
	}
	return edited.Without(after.Machine).Without(after.Unclear)
}

// editedBetween returns the keys that users have edited between two states of a Node. all has the
// labels of the later one; after lacks those that the webhook added. The set may be larger than
// [labels.MaxKeysBytes].
func editedBetween(before, after labels.Side, all map[string]string) labels.Keys {
	byUsers := func(of labels.Side, key string) bool { return !of.Machine.Has(key) && !of.Unclear.Has(key) }
	return labels.AllKeysOf(func(yield func(string) bool) {
		for key, value := range after.Labels {
			former, wasThere := before.Labels[key]
			isEdited := wasThere && former != value || !wasThere && labels.IsLabel(key)
			if isEdited && byUsers(after, key) && !yield(key) {
				return
			}
		}
		for key := range before.Labels {
			if _, isThere := all[key]; !isThere && byUsers(before, key) && !yield(key) {
				return
			}
		}
	})
}

// unsavedEdits returns the keys that users have edited on an incarnation that has ended without the
// labels of a record. The next incarnation must get these edits. Labels that belong to a machine stay
// as they are saved: the incarnation may be another machine. So do labels of the former machine's
// agents with which the Node was created, see [copies].
//
// A watcher records the states of a node in their order. A processor that has seen the end itself
// may know it before a watcher has recorded the last states of the incarnation that the record
// follows. They would count as older than the edits, so a processor saves none before the end of
// that incarnation is on record.
func unsavedEdits(t txn.Transaction, r record.Record, policy labels.Policy) labels.Keys {
	if t.Type != txn.Deleted || t.Edited == "" || t.ByProcessor && !r.Ended || !isUnrestored(t, r) && !isSavedInPart(t, r) {
		return ""
	}
	isKept := func(key string) bool {
		return policy.Has(key) && !policy.Ignored.Match(key) && policy.ModeOf(key) == labels.Keep
	}
	return t.Edited.Where(isKept).Without(copies(r, sideOf(t)))
}

// withEdits returns a record with the values that some keys had when an incarnation ended, or without
// them. They belong to users now. The record still follows the same incarnation, but its revision is
// that of the end, so that a Node with the marker of the former one does not count as restored. If
// nothing changes, the record gets a note, so that late events from before the end count as older.
func withEdits(t txn.Transaction, r record.Record, keys labels.Keys, bound labels.MachineBound) record.Record {
	next := r
	edited, others := divided(t.Labels, keys.Set())
	_, next.Labels = divided(r.Labels, keys.Set())
	maps.Copy(next.Labels, edited)
	wasMachines := r.Machine.Union(t.Overruled).Set()
	next.Machine, next.Unclear = r.Machine.Without(keys), r.Unclear.Without(keys)
	next.Overruled = r.Overruled.Union(keys.Where(func(key string) bool { return wasMachines[key] }))
	next.Withheld = withheldWithout(r, t.UID, keys)
	owners := t.Owners.Without(labels.KeysOf(maps.Keys(others)))
	next.Owners = owners.After(r.Owners.Without(keys), allOf(r), allOf(next)).Others()
	follows := cmp.Or(r.Restored.UID, r.Source)
	switch isSame := Equivalent(next, r, bound) && next.Owners == r.Owners; {
	case isSame && !isUnrestored(t, r):
		return r
	case isSame:
		next = noted(next, follows, t.Revision)
	default:
		next.Revision, next.Source, next.Restored = t.Revision, follows, record.Restoration{}
	}
	setEnd(&next, t)
	return next
}

// withheldWithout returns the withheld labels of a record without some keys, after an incarnation has
// ended that never got them.
func withheldWithout(r record.Record, uid types.UID, keys labels.Keys) []record.Withheld {
	var next []record.Withheld
	for _, w := range r.Withheld {
		if _, w.Labels = divided(w.Labels, keys.Set()); len(w.Labels) == 0 {
			continue
		}
		if w.State.WaitsFor(uid) || w.State.IsUnconfirmedFor(uid) {
			w.State = record.Kept
		}
		next = append(next, w)
	}
	return next
}
