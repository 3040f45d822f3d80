package preserve

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Saved returns the part of a record that a restore uses. Keys in both lists of a record are
// copied.
func Saved(r record.Record) labels.Side {
	copied := r.Machine.Without(r.Machine.Without(r.Unclear))
	return labels.Side{
		Labels: r.Labels, Machine: r.Machine, Unclear: r.Unclear.Without(copied), Overruled: r.Overruled, Copied: copied, Withheld: r.WithheldKeys(),
	}
}

// unignored returns the saved labels of a record, without ownership of keys that are now ignored.
// Watchers no longer report these keys, so their absence does not prove that a user removed them,
// and a processor that did not ignore them yet may have noted them as overruled.
func unignored(r record.Record, policy labels.Policy) labels.Side {
	side := Saved(r)
	isSeen := func(key string) bool { return !policy.Ignored.Match(key) }
	side.Machine, side.Overruled, side.Copied = side.Machine.Where(isSeen), side.Overruled.Where(isSeen), side.Copied.Where(isSeen)
	return side
}

// setOwnership copies the ownership of the labels from a side into a record.
func setOwnership(r *record.Record, side labels.Side) {
	r.Machine, r.Unclear, r.Overruled = side.Machine, side.Unclear.Union(side.Copied), side.Overruled
}

func sideOf(t txn.Transaction) labels.Side {
	return labels.Side{Labels: t.Labels, Machine: t.Machine, Unclear: t.Unclear, Overruled: t.Overruled}
}

// sideOfNode returns a returned Node's own labels, for a restore. It leaves out labels that the
// webhook added, because their record may have changed since.
func sideOfNode(n *nodeview.Node) labels.Side {
	side := wholeSideOf(n)
	if n.Admitted != "" {
		_, side.Labels = divided(n.Labels, n.Admitted.Set())
	}
	return side
}

// wholeSideOf is like sideOfNode, with the labels that the webhook added.
func wholeSideOf(n *nodeview.Node) labels.Side {
	return labels.Side{Labels: n.Labels, Machine: n.Machine, Unclear: n.Unclear}
}

// Noted returns the record after a restore, given the Node before and after it. If the Node has the
// saved labels, the record gets a note. If it has others, for example because live labels were
// merged, these are saved. If it had its labels before and only got withheld ones, that is noted.
func Noted(r record.Record, read, left nodeview.Node, bound labels.MachineBound) record.Record {
	if isSourceOrRestored(r, left.UID) {
		return notedWithheld(r, left)
	}
	return notedSince(sideOfNode(&read), r, left, read.Machine.Missing(left.Labels), bound)
}

// notedLate returns the record after an unnoted restore onto the incarnation whose start t records;
// n is any later state of it. Edits since the restore are saved. The Node's revision is used, not
// the transaction's: edits between the add and the restore do not count.
func notedLate(t txn.Transaction, r record.Record, n nodeview.Node, bound labels.MachineBound) record.Record {
	return notedSince(sideOf(t), r, n, "", bound)
}

// notedSince returns the record after a restore onto n, given the labels that n had before and the
// keys that agents have withdrawn since. Restored keys whose setter was unknown stay unclear, and
// what was copied from the former machine stays a machine's, see [copies].
//
// If the webhook restored labels, the record follows that incarnation even if its labels are the
// same. While they stay the same, the end of the incarnation does not change the revision, so a
// response of the webhook before that end is saved carries the right revision.
func notedSince(before labels.Side, r record.Record, n nodeview.Node, withdrawn labels.Keys, bound labels.MachineBound) record.Record {
	next := noted(r, n.UID, n.Revision)
	withheld := withheldOn(r, n)
	if !maps.Equal(n.Labels, r.Labels) || len(withheld) > 0 || n.Admitted != "" {
		next = record.Record{Node: r.Node, Labels: n.Labels, Revision: n.Revision, Source: n.UID}
	}
	next.Withheld = withheld
	before.Copied = copies(r, before)
	before.Machine = before.Machine.Union(before.Copied)
	merged := mergeOwnership(before, sideOfNode(&n), withdrawn)
	merged.Overruled = merged.Overruled.Union(r.Overruled).Without(merged.Machine)
	merged.Unclear = merged.Unclear.Union(Saved(r).Unclear.Same(r.Labels, n.Labels)).Without(merged.Machine)
	setOwnership(&next, merged)
	setOwners(&next, n.Owners, &r)
	identify(&next, n.UID, &r, &n, bound)
	return next
}

// setOwners sets the owners of the labels in a record, which replaces r, nil if none exists.
func setOwners(next *record.Record, later fieldmanagers.Owners, r *record.Record) {
	var former fieldmanagers.Owners
	var before []map[string]string
	if r != nil {
		former, before = r.Owners, allOf(*r)
	}
	next.Owners = later.After(former, before, allOf(*next)).Others()
}

// allOf returns the labels and the withheld labels of a record.
func allOf(r record.Record) []map[string]string {
	all := []map[string]string{r.Labels}
	for _, w := range r.Withheld {
		all = append(all, w.Labels)
	}
	return all
}

// UserRecord returns a record whose labels come from a user instead of an incarnation. now is the
// revision of the Node list at a moment when no Node of that name existed, or none that should keep
// its own labels. No earlier event is later than the record, and no earlier marker matches it, so
// the next incarnation to be added gets these labels, and late transactions of former ones have no
// effect. Labels that agents of a former machine had set are not restored.
func UserRecord(node string, side labels.Side, now revision.Revision) record.Record {
	r := record.Record{Node: node, Labels: side.Labels, Revision: now}
	setOwnership(&r, side)
	return r
}

// Edited returns the saved labels after a user has replaced them by edited. Keys named by the user
// override the agents, whether set or removed.
func Edited(saved labels.Side, edited map[string]string, named labels.Keys) labels.Side {
	after := labels.Side{
		Labels: edited, Machine: saved.Machine.Without(named), Unclear: saved.Unclear.Without(named), Copied: saved.Copied.Without(named),
	}
	after.Overruled = saved.Overruled.Union(saved.Machine.Without(after.Machine)).Union(named.Missing(edited))
	return after
}

// Forgotten returns the replacement of a removed record, which keeps earlier events from having any
// effect, however late they are recorded. n is the live Node, nil if none existed at now, the
// resourceVersion of the Node list. The replacement is a record of the live Node's labels, or a
// floor if there is no Node. The removed record, nil if unknown, shows which of these labels no
// user is known to have set. A Node that they were restored onto does not.
func Forgotten(node string, removed *record.Record, n *nodeview.Node, now revision.Revision) record.Record {
	if n == nil {
		return record.Record{Node: node, Revision: now, Floor: true}
	}
	r := record.Record{Node: node, Labels: n.Labels, Revision: n.Revision, Source: n.UID, Owners: n.Owners.Others()}
	side := wholeSideOf(n)
	if removed != nil {
		side = mergeOwnership(ownershipBefore(*removed, n), side, "")
		side.Overruled = side.Overruled.Without(side.Overruled.Missing(n.Labels)) // what users removed is forgotten
	}
	setOwnership(&r, side)
	r.Identity = identityOf(n.UID, nil, n)
	return r
}

// noted returns the record with a note of the last incarnation that was seen to have its labels.
func noted(r record.Record, uid types.UID, rv revision.Revision) record.Record {
	r.Restored, r.Ended = record.Restoration{UID: uid, Revision: rv}, false
	return r
}

// setEnd records whether a state is the end of its incarnation, and when that was.
func setEnd(r *record.Record, t txn.Transaction) {
	r.Ended, r.EndedAt = t.Type == txn.Deleted, time.Time{}
	if r.Ended {
		r.EndedAt = t.ObservedAt
	}
}

// ownershipBefore returns what a record has of the setters of a live Node's labels.
func ownershipBefore(r record.Record, n *nodeview.Node) labels.Side {
	if isSourceOrRestored(r, n.UID) {
		return Saved(r)
	}
	restored := wholeSideOf(n)
	if !Owned(r, n.UID, n.Marker) { // it may have labels from the webhook
		restored.Labels, _ = divided(n.Labels, n.Admitted.Set())
	}
	return ownershipAfterRestore(r, restored)
}

// captured returns the record of the labels in t, which replaces r, nil if none exists. It has no
// note of a restore, because the last restore was of other labels.
func captured(t txn.Transaction, r *record.Record, n *nodeview.Node, policy labels.Policy) record.Record {
	next := record.Record{Node: t.Node, Labels: t.Labels, Revision: t.Revision, Source: t.UID}
	setEnd(&next, t)
	var before labels.Side
	switch {
	case r == nil:
	case isSourceOrRestored(*r, t.UID):
		before = unignored(*r, policy)
	default:
		before = ownershipAfterRestore(*r, sideOf(statesOf(t)[0]))
	}
	setOwnership(&next, ownershipAfter(before, t))
	if r != nil {
		next.Withheld = withheldAfter(t, *r)
	}
	setOwners(&next, t.Owners, r)
	identify(&next, t.UID, r, n, policy.MachineBound)
	return next
}

// ownershipAfter returns what is known of the setters of labels after each state of an incarnation
// that a transaction stands for.
func ownershipAfter(before labels.Side, t txn.Transaction) labels.Side {
	for _, state := range statesOf(t) {
		before = mergeOwnership(before, sideOf(state), state.Withdrawn)
	}
	return before
}

// ownershipAfterRestore returns what is known of the ownership of an incarnation that was restored
// from a record, when first is the first known state of it. The former machine owns nothing, except
// what was copied. A restored key whose setter was unknown stays unclear, as in [notedSince].
func ownershipAfterRestore(r record.Record, first labels.Side) labels.Side {
	copied, unclear := copies(r, first), Saved(r).Unclear.Same(r.Labels, first.Labels)
	attributed, _ := divided(first.Labels, copied.Union(unclear).Set())
	return labels.Side{Labels: attributed, Machine: copied, Copied: copied, Unclear: unclear, Overruled: r.Overruled}
}
