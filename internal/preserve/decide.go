package preserve

import (
	"cmp"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Action is the kind of write that a decision requires.
type Action int

const (
	// Nothing writes nothing: the transaction has had its effect, or never has one.
	Nothing Action = iota
	// Save stores Decision.Record: a new record, newer labels, or only a note.
	Save
	// Restore sets the Node's labels to Decision.Labels and its marker to Decision.Marker in one
	// write, conditional on the Node that was read, and then stores [Noted].
	Restore
	// Open removes the startup taint and the marker from the Node, conditional on the Node that was
	// read. The Node has its labels already, or there are none to restore.
	Open
)

// String returns the action's name in lower case.
func (a Action) String() string {
	switch a {
	case Nothing:
		return "nothing"
	case Save:
		return "save"
	case Restore:
		return "restore"
	case Open:
		return "open"
	}
	return "unknown"
}

// Superseded is the reason of a save that is skipped because a later save of the plan replaces it.
const Superseded = "superseded by a later save"

// Decision is a write and its reason.
type Decision struct {
	Action Action
	// Record is what to store if the action is Save.
	Record record.Record
	// Labels and Marker are what the Node must have if the action is Restore.
	Labels map[string]string
	Marker string
	// Reason is a constant text for logs and users.
	Reason string
	// Again reports that the transaction must be decided again once this decision is executed: it
	// has not had its full effect.
	Again bool
	// Renews reports that the record was of an earlier history, see [Ahead].
	Renews bool
	// Held are the labels of a machine that the Node does not get.
	Held []Held
}

// IsNote reports whether d stores labels that are saved already, only to record which incarnation
// has them or that they were seen later.
func (d Decision) IsNote() bool { return d.Action == Save && d.Record.Restored.UID != "" }

// Owned reports whether an incarnation has its saved labels: they came from it or were restored
// onto it, so its current labels are the ones to save. A floor has no labels, so no incarnation
// owns it.
func Owned(r record.Record, uid types.UID, marker string) bool {
	return !r.Floor && (isSourceOrRestored(r, uid) || marker == r.Revision.String())
}

// FollowsAnother reports whether a record follows an incarnation other than this one. A record that
// users have written follows none. A marker without a transaction does not make the record
// follow the incarnation.
func FollowsAnother(r record.Record, uid types.UID) bool {
	return (r.Source != "" || r.Restored.UID != "") && !isSourceOrRestored(r, uid)
}

// Applied reports whether a record proves that a transaction has had its effect: the state of the
// incarnation at that revision, or a later one, was saved, restored or noted. The decision is then
// [Nothing] for every Node and every later record, so a stale record proves it, too.
//
// False proves nothing: the transaction may have had its effect anyway. Applied is always false for
// a transaction that has yet to identify its incarnation's machine or to remove the startup taint.
// Withheld labels may still be restored after a transaction is applied, because the record keeps
// them waiting.
func Applied(t txn.Transaction, r record.Record, bound labels.MachineBound) bool {
	if t.Type == txn.Added && (ComesGated(t) || r.Identity.UID != t.UID && hasBound(t.Labels, t.Machine, bound)) {
		return false
	}
	return covers(r, t) && !isUnnotedEnd(t, r)
}

// covers reports whether a record includes the state of the incarnation at the revision of a
// transaction, or a later one.
func covers(r record.Record, t txn.Transaction) bool {
	switch t.UID {
	case r.Restored.UID:
		return !t.Revision.After(r.Restored.Revision)
	case r.Source:
		return !t.Revision.After(r.Revision)
	}
	return false
}

// RestoredUnnoted reports whether a transaction contains an incarnation that has the labels of a
// record which does not note it yet. If the record was read from a stale cache, the labels may be
// those of a later revision of it.
func RestoredUnnoted(t txn.Transaction, r record.Record) bool {
	return (t.Marker == r.Revision.String() || revision.Of(t.Marker).After(r.Revision)) && !isSourceOrRestored(r, t.UID)
}

// Decide returns the effect of transaction t, given the node's record and the live Node, each nil
// if it does not exist. Only an Added transaction uses the Node, if the node has a record or the
// startup taint; in addition, every save of labels that belong to a machine uses the Node's
// identity. A node whose record is a floor is treated as new.
//
// A restore removes the startup taint as well. If there is nothing to restore, the taint is removed
// after everything is saved.
//
// An update of a live incarnation that never got its labels counts as its addition: the record may
// have been replaced by an earlier one since the restore, or the addition may have been lost.
func Decide(t txn.Transaction, r *record.Record, n *nodeview.Node, policy labels.Policy) Decision {
	t = merged(t, r)
	if isStranded(t, r) && n != nil && n.UID == t.UID && !n.Unselected {
		t.Type, t.FoundsRecord, t.AtOnce = txn.Added, false, false
	}
	d := decide(t, r, n, policy)
	if t.Type != txn.Added || n == nil || n.UID != t.UID || !n.Gated {
		return d
	}
	switch d.Action {
	case Nothing:
		return Decision{Action: Open, Reason: d.Reason, Held: d.Held}
	case Save:
		d.Again = true
	case Restore, Open:
	}
	return d
}

func decide(t txn.Transaction, r *record.Record, n *nodeview.Node, policy labels.Policy) Decision {
	if r != nil && r.Floor {
		if !t.Revision.After(r.Revision) {
			return nothing("an event from before the node was forgotten")
		}
		r = nil
	}
	if r != nil {
		t = withOverruled(t, removedPreserved(t, *r, policy))
	}
	switch {
	case r == nil && t.Type == txn.Added && !t.FoundsRecord:
		return nothing("no labels are saved for this node")
	case r == nil:
		return save(captured(t, nil, n, policy), "first labels of this node")
	case t.Type == txn.Added && !isLaterAdded(t, *r):
		return decideRestore(t, *r, n, policy)
	}
	d := decideSave(t, *r, n, policy)
	d.Again = t.Type == txn.Added && len(r.Withheld) > 0 // these may be restored now
	return d
}

// isUnnotedEnd reports whether a record has the state in which a processor lets an incarnation go,
// but does not note that this is its end.
func isUnnotedEnd(t txn.Transaction, r record.Record) bool {
	return t.ByProcessor && t.Type == txn.Deleted && !r.Ended &&
		t.UID == cmp.Or(r.Restored.UID, r.Source) && t.Revision == cmp.Or(r.Restored.Revision, r.Revision)
}

func decideSave(t txn.Transaction, r record.Record, n *nodeview.Node, policy labels.Policy) Decision {
	switch {
	case isUnnotedEnd(t, r):
		next := noted(r, t.UID, t.Revision)
		setEnd(&next, t)
		return save(next, "the end of the saved state")
	case !isLater(t, r):
		if edits := unsavedEdits(t, r, policy); edits != "" {
			if next := withEdits(t, r, edits, policy.MachineBound); !next.Equal(r) {
				return save(next, "edits of an incarnation that never got its labels back")
			}
		}
		return nothing("an older event, or of an incarnation that never got its labels back")
	case !maps.Equal(t.Labels, r.Labels):
		return save(captured(t, &r, n, policy), "the labels changed")
	case t.UID == r.Source:
		// An event from between the two that is recorded late counts as older now. The revision
		// stays, because a restore from it may be under way: another watcher may have recorded the
		// next incarnation before this event.
		later := noted(r, t.UID, t.Revision)
		setOwnership(&later, ownershipAfter(unignored(r, policy), t))
		later.Withheld = withheldAfter(t, r)
		setEnd(&later, t)
		setOwners(&later, t.Owners, &r)
		identify(&later, t.UID, &r, n, policy.MachineBound)
		if Equivalent(later, r, policy.MachineBound) {
			return save(later, "the same labels, seen later")
		}
		// The next restore differs, so a Node admitted with the previous record must not count as
		// restored.
	}
	// Advance the revision, so that an earlier marker, copied onto the next incarnation with this
	// node's labels, does not match.
	return save(captured(t, &r, n, policy), "the same labels, seen later")
}

// isLaterAdded reports whether an Added transaction contains a later state, of an incarnation that
// has its labels, than the record does. This happens when a watcher starts before a node has a
// record: another watcher may have recorded an earlier state in the meantime.
func isLaterAdded(t txn.Transaction, r record.Record) bool {
	return t.FoundsRecord && isSourceOrRestored(r, t.UID) && isLater(t, r)
}

// isLater reports whether t contains a later state than the record of the incarnation that the
// record follows. An event from before a restore onto the next incarnation is never later: the next
// incarnation has the labels of the record, which may have been edited since.
func isLater(t txn.Transaction, r record.Record) bool {
	if !t.Revision.After(r.Restored.Revision) {
		return false
	}
	switch t.UID {
	case r.Source:
		return t.Revision.After(r.Revision)
	case r.Restored.UID:
		return true
	}
	// Restored onto this incarnation, but not noted yet; or from a later record, and someone has put an
	// earlier one in its place, as from a backup.
	return t.Marker == r.Revision.String() || t.RestoredFrom().After(r.Revision)
}

func decideRestore(t txn.Transaction, r record.Record, n *nodeview.Node, policy labels.Policy) Decision {
	switch {
	case (n == nil || n.UID != t.UID) && r.WaitsFor(t.UID):
		return save(waitedFor(r, t.UID), "the incarnation that labels waited for is gone")
	case (n == nil || n.UID != t.UID) && t.FoundsRecord && isLater(t, r):
		// It was admitted with its labels. Only this transaction may report which of them the agents
		// had set, and so which of them a user has removed since.
		return decideSave(t, r, n, policy)
	case n == nil || n.UID != t.UID:
		return nothing("that incarnation is gone")
	case n.UID == r.Source && r.Restored.UID != "" && r.Restored.UID != n.UID:
		return nothing("an incarnation after this one has its labels already") // the Node was read before that
	case isSourceOrRestored(r, n.UID):
		return decideWithheld(r, n, policy)
	case n.Marker == r.Revision.String():
		return decideNote(t, r, n, policy, "the restore was done but not noted")
	case restoredFrom(n).After(r.Revision) && !t.IsRequest():
		return decideNote(t, r, n, policy, "the node has its labels from a later record")
	}
	if next, held, changed := resolve(r, n, policy); changed {
		d := save(next, "decided which labels of a machine the returned one gets")
		d.Again, d.Held = true, held
		return d
	}
	held := heldFrom(r, n, policy)
	live := sideWithRefused(r, n)
	if !t.IsRequest() {
		live.Edited = editedSince(t, n, policy)
	}
	return Decision{
		Action: Restore,
		Labels: policy.Restored(live, withDecided(r, n.UID)),
		Marker: r.Revision.String(),
		Reason: "the node returned without its labels",
		Again:  waits(held),
		Held:   held,
	}
}

// decideNote decides about a restore that was done but not noted.
func decideNote(t txn.Transaction, r record.Record, n *nodeview.Node, policy labels.Policy, reason string) Decision {
	if !n.Revision.After(r.Restored.Revision) {
		return nothing("an incarnation after this one has its labels already")
	}
	if t.Latest != nil && !t.Latest.Revision.After(n.Revision) {
		overruled := t.Latest.Overruled
		t.Machine, t.Overruled = t.Machine.Without(overruled), t.Overruled.Union(overruled)
	}
	next := notedLate(t, r, *n, policy.MachineBound)
	if policy.Preserves != nil {
		// The processor has read the Node itself, which is newer than anything recorded.
		removed := t.Machine.Union(t.Unclear.Taints()).Where(policy.Preserves).Missing(n.Labels)
		next.Overruled = next.Overruled.Union(removed)
	}
	d := save(next, reason)
	d.Again = len(d.Record.Withheld) > 0 // some of these may wait
	return d
}

func isSourceOrRestored(r record.Record, uid types.UID) bool {
	return uid == r.Source || uid == r.Restored.UID
}

func nothing(reason string) Decision { return Decision{Action: Nothing, Reason: reason} }

func save(r record.Record, reason string) Decision {
	return Decision{Action: Save, Record: r, Reason: reason}
}
