package preserve

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Action is what a decision writes.
type Action int

const (
	// Nothing means: write nothing. The transaction has had its effect, or never has one.
	Nothing Action = iota
	// Save means: store Decision.Record. It is a new one, newer labels, or only a note.
	Save
	// Restore means: set the Node's labels to Decision.Labels and its marker to Decision.Marker
	// in one write, with the Node that was read as precondition; then store [Noted].
	Restore
	// Open means: remove the startup taint and the marker from the Node, which has its labels or
	// gets none, with the Node that was read as precondition.
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

// Superseded is the reason of a save that is not written because a later save of the plan replaces
// it.
const Superseded = "superseded by a later save"

// Node is the live Node as the decision sees it.
type Node struct {
	UID      types.UID
	Revision revision.Revision
	// Labels are the node's labels without the marker.
	Labels map[string]string
	// Machine are the keys of those that only the machine's agents have set, Unclear of those of
	// which nobody knows any more who did.
	Machine, Unclear labels.Keys
	Marker           string
	// Identity is which machine it is, if IdentityRead.
	Identity     identity.Identity
	IdentityRead bool
	// Unselected reports whether the Node is not looked after, see [nodeview.Selected].
	Unselected bool
	// Gated reports whether the Node waits behind the startup taint, see [nodeview.Gated].
	Gated bool
	// Admitted are the keys of the labels that the webhook has set when the Node was created, and
	// nobody since, the marker among them.
	Admitted labels.Keys
}

// NodeOf returns a Node, which was stamped, as the decision sees it.
func NodeOf(n *metav1.PartialObjectMetadata) *Node {
	own, marker := labels.Split(n.Labels)
	id, isRead := identity.Noted(n)
	return &Node{
		UID: n.UID, Revision: revision.Of(n.ResourceVersion), Labels: own, Machine: agents.Machine(n), Unclear: agents.Unclear(n), Marker: marker,
		Identity: id, IdentityRead: isRead, Unselected: !nodeview.Selected(n), Gated: nodeview.Gated(n), Admitted: agents.Admitted(n),
	}
}

// Decision is what to write, and why.
type Decision struct {
	Action Action
	// Record is what to store if the action is Save.
	Record record.Record
	// Labels and Marker are what the Node must have if the action is Restore.
	Labels map[string]string
	Marker string
	// Reason is a constant text for logs and users.
	Reason string
	// Again reports that the transaction must be decided about once more after this is done: it has
	// not had all of its effect.
	Again bool
	// Held are the restricted labels that the Node does not get.
	Held []Held
}

// IsNote reports whether d saves labels that are saved already, to note of which incarnation they
// are, or that they were seen later.
func (d Decision) IsNote() bool { return d.Action == Save && d.Record.Restored.UID != "" }

// Owned reports whether an incarnation has its saved labels: they came from it or
// were restored onto it, so its labels now are the ones to save.
// A floor has no labels, so no incarnation owns them.
func Owned(r record.Record, uid types.UID, marker string) bool {
	return !r.Floor && (isSourceOrRestored(r, uid) || marker == r.Revision.String())
}

// Applied reports whether a record shows that a transaction has had its effect: the state of the
// incarnation at that revision, or a later one, was saved, restored or noted. Then the decision is
// [Nothing] for every Node, and stays so whatever is written to the record afterwards, so a record
// that is behind can show it, too. If the result is false, the transaction may have had its effect
// all the same. It is false for what notes which machine an incarnation is, and for what opens the
// gate of one that came with the startup taint. Withheld labels may still come back by a
// transaction that has had its effect: what waits does so in the record.
func Applied(t txn.Transaction, r record.Record) bool {
	if t.Type == txn.Added && (ComesGated(t) || r.Identity.UID != t.UID && HasRestricted(t.Labels, t.Machine)) {
		return false
	}
	return shows(r, t)
}

// shows reports whether a record shows the state of the incarnation at the revision of a
// transaction, or a later one.
func shows(r record.Record, t txn.Transaction) bool {
	switch t.UID {
	case r.Restored.UID:
		return !t.Revision.After(r.Restored.Revision)
	case r.Source:
		return !t.Revision.After(r.Revision)
	}
	return false
}

// RestoredUnnoted reports whether a transaction shows an incarnation with the labels of a record
// which does not note it yet. It may be a later revision of the record than this one, if this one
// was read from a cache that is behind.
func RestoredUnnoted(t txn.Transaction, r record.Record) bool {
	return (t.Marker == r.Revision.String() || revision.Of(t.Marker).After(r.Revision)) && !isSourceOrRestored(r, t.UID)
}

// Decide returns the effect of transaction t, given the node's record, nil if
// there is none, and the live Node, nil if there is none. Only an Added
// transaction of a node with a record, or with the startup taint, looks at the Node, and restricted
// labels make every save look at which machine it is. After a floor a node is new.
//
// The startup taint goes by the restore. If there is nothing to restore, it goes after all that is
// to be saved is.
func Decide(t txn.Transaction, r *record.Record, n *Node, policy labels.Policy) Decision {
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

func decide(t txn.Transaction, r *record.Record, n *Node, policy labels.Policy) Decision {
	if r != nil && r.Floor {
		if !t.Revision.After(r.Revision) {
			return nothing("an event from before the node was forgotten")
		}
		r = nil
	}
	if r != nil {
		t.Overruled = t.Overruled.Union(removedPreserved(t, *r, policy))
	}
	switch {
	case r == nil && t.Type == txn.Added && !t.FoundsRecord:
		return nothing("no labels are saved for this node")
	case r == nil:
		return save(captured(t, nil, n, policy), "first labels of this node")
	case t.Type == txn.Added && !showsLater(t, *r):
		return decideRestore(t, *r, n, policy)
	}
	d := decideSave(t, *r, n, policy)
	d.Again = t.Type == txn.Added && len(r.Withheld) > 0 // they may be put back now
	return d
}

func decideSave(t txn.Transaction, r record.Record, n *Node, policy labels.Policy) Decision {
	switch {
	case !isLater(t, r):
		return nothing("an older event, or of an incarnation that never got its labels back")
	case !maps.Equal(t.Labels, r.Labels):
		return save(captured(t, &r, n, policy), "the labels changed")
	case t.UID == r.Source:
		// An event from between the two, recorded late, is older now. But the revision stays: a
		// restore from it may be under way, if another watcher has recorded the next incarnation
		// before this event.
		later := noted(r, t.UID, t.Revision)
		heed(&later, whose(seen(r, policy), sideOf(t), t.Withdrawn))
		later.Ended, later.Withheld = t.Type == txn.Deleted, withheldAfter(t, r)
		identify(&later, t.UID, &r, n)
		if SaysTheSame(later, r) {
			return save(later, "the same labels, seen later")
		}
		// What a restore gives differs: a Node that was admitted by the record of before does not
		// have it.
	}
	// The revision moves on, so that an earlier marker, copied with this node's labels onto the
	// next incarnation, means nothing.
	return save(captured(t, &r, n, policy), "the same labels, seen later")
}

// showsLater reports whether an Added transaction shows an incarnation that has its labels, in a
// later state than the record does: a watcher that starts cannot know what others have recorded of
// a node that has no record yet.
func showsLater(t txn.Transaction, r record.Record) bool {
	return t.FoundsRecord && isSourceOrRestored(r, t.UID) && isLater(t, r)
}

// isLater reports whether t shows a later state of the incarnation that the record follows than the
// record does. No event from before a restore onto the next incarnation is later: that one has the
// labels of the record, and may have been edited since.
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
	return t.Marker == r.Revision.String() // the restore onto this incarnation is done, and not noted yet
}

func decideRestore(t txn.Transaction, r record.Record, n *Node, policy labels.Policy) Decision {
	switch {
	case (n == nil || n.UID != t.UID) && r.WaitsFor(t.UID):
		return save(waitedFor(r, t.UID), "the incarnation that restricted labels waited for is gone")
	case n == nil || n.UID != t.UID:
		return nothing("that incarnation is gone")
	case isSourceOrRestored(r, n.UID):
		return decideOwner(r, n, policy)
	case n.Marker == r.Revision.String():
		return decideNote(t, r, n, policy)
	}
	if next, held, changed := resolve(r, n, policy); changed {
		d := save(next, "which restricted labels the returned machine gets")
		d.Again, d.Held = true, held
		return d
	}
	held := heldFrom(r, n, policy)
	return Decision{
		Action: Restore,
		Labels: policy.Restored(n.side(), withDecided(r, n.UID)),
		Marker: r.Revision.String(),
		Reason: "the node returned without its labels",
		Again:  waits(held),
		Held:   held,
	}
}

// decideNote decides about a restore that was done and not noted.
func decideNote(t txn.Transaction, r record.Record, n *Node, policy labels.Policy) Decision {
	if !n.Revision.After(r.Restored.Revision) {
		return nothing("an incarnation after this one has its labels already")
	}
	next := notedLate(t, r, *n)
	if policy.Preserves != nil {
		// The processor has read the Node itself, and what is recorded of it since is older now.
		removed := t.Machine.Union(t.Unclear.Taints()).Where(policy.Preserves).Missing(n.Labels)
		next.Overruled = next.Overruled.Union(removed)
	}
	d := save(next, "the restore was done but not noted")
	d.Again = len(d.Record.Withheld) > 0 // some of them may wait
	return d
}

// Saved returns what a restore takes from a record.
func Saved(r record.Record) labels.Side {
	return labels.Side{Labels: r.Labels, Machine: r.Machine, Unclear: r.Unclear, Overruled: r.Overruled, Withheld: r.WithheldKeys()}
}

// seen returns what a record says, without whose the labels are that are ignored by now: no watcher
// sees these any more, so that they are gone does not mean that a person has removed them. A
// processor that did not ignore them yet may have noted that they were overruled.
func seen(r record.Record, policy labels.Policy) labels.Side {
	side := Saved(r)
	isSeen := func(key string) bool { return !policy.Ignored.Match(key) }
	side.Machine, side.Overruled = side.Machine.Where(isSeen), side.Overruled.Where(isSeen)
	return side
}

// heed gives a record what is known of whose its labels are.
func heed(r *record.Record, known labels.Side) {
	r.Machine, r.Unclear, r.Overruled = known.Machine, known.Unclear, known.Overruled
}

func sideOf(t txn.Transaction) labels.Side {
	return labels.Side{Labels: t.Labels, Machine: t.Machine, Unclear: t.Unclear, Overruled: t.Overruled}
}

// side returns what a restore knows of a returned Node. What the webhook has put onto it, from a
// record that has changed since, is not what it came with.
func (n *Node) side() labels.Side {
	own := n.Labels
	if n.Admitted != "" {
		own = maps.Clone(own)
		for key := range n.Admitted.All() {
			delete(own, key)
		}
	}
	return labels.Side{Labels: own, Machine: n.Machine, Unclear: n.Unclear}
}

// Noted returns the record after a restore: the Node was read before it, and left by it. If it has
// the saved labels then, the record gets a note. If it has others, by live labels for instance,
// these are saved. If it had its labels before and got withheld ones, that is noted.
func Noted(r record.Record, read, left Node) record.Record {
	if isSourceOrRestored(r, left.UID) {
		return putBackOn(r, left)
	}
	return notedSince(read.side(), r, left, read.Machine.Missing(left.Labels))
}

// notedLate returns the record after a restore onto the incarnation whose start t records; n is any
// later state of it. What was edited since is saved. The Node's revision counts and not the
// transaction's: edits between the add and the restore do not.
func notedLate(t txn.Transaction, r record.Record, n Node) record.Record {
	return notedSince(sideOf(t), r, n, "")
}

// notedSince returns the record after a restore onto n, which had some labels before. Agents have
// withdrawn some of these since. What was unclear and was put back stays unclear.
//
// Where the webhook has put labels back, the record follows that incarnation, although its labels
// are the same: as long as they stay so, the end of the incarnation does not change the revision.
// So what the webhook answers before that end is saved is right, too.
func notedSince(before labels.Side, r record.Record, n Node, withdrawn labels.Keys) record.Record {
	next := noted(r, n.UID, n.Revision)
	withheld := withheldOn(r.Withheld, n)
	if !maps.Equal(n.Labels, r.Labels) || len(withheld) > 0 || n.Admitted != "" {
		next = record.Record{Node: r.Node, Labels: n.Labels, Revision: n.Revision, Source: n.UID}
	}
	next.Withheld = withheld
	known := whose(before, n.side(), withdrawn)
	known.Overruled = known.Overruled.Union(r.Overruled).Without(known.Machine)
	known.Unclear = known.Unclear.Union(r.Unclear.Same(r.Labels, n.Labels)).Without(known.Machine)
	heed(&next, known)
	identify(&next, n.UID, &r, &n)
	return next
}

// Given returns the record of a node whose labels come from a user and not from an incarnation. now
// is the revision of all Nodes at a moment when there was none of that name, or none that should
// keep its own labels: no earlier event is later than the record, and no earlier marker agrees with
// it. So the next incarnation that is seen to be added gets these labels, and late transactions of
// former ones have no effect. What agents of a former machine had set is not given.
func Given(node string, given labels.Side, now revision.Revision) record.Record {
	r := record.Record{Node: node, Labels: given.Labels, Revision: now}
	heed(&r, given)
	return r
}

// Edited returns what is saved after a person has given it these labels. The person has named some
// keys: what agents had said on these is overruled, and what agents say on those that were removed.
func Edited(saved labels.Side, edited map[string]string, named labels.Keys) labels.Side {
	after := labels.Side{Labels: edited, Machine: saved.Machine.Without(named), Unclear: saved.Unclear.Without(named)}
	after.Overruled = saved.Overruled.Union(saved.Machine.Without(after.Machine)).Union(named.Missing(edited))
	return after
}

// Forgotten returns what takes the place of a record that is removed, so that no event from before
// has any effect, however late it is recorded. n is the live Node, nil if there was none at now,
// the resourceVersion of all Nodes then. Of a live Node it is a record of what the Node has; of an
// absent one it is a floor.
func Forgotten(node string, n *Node, now revision.Revision) record.Record {
	if n == nil {
		return record.Record{Node: node, Revision: now, Floor: true}
	}
	r := record.Record{Node: node, Labels: n.Labels, Revision: n.Revision, Source: n.UID}
	heed(&r, n.side())
	identify(&r, n.UID, nil, n)
	return r
}

// noted returns the record with a note of the last incarnation that was seen to have its labels.
func noted(r record.Record, uid types.UID, rv revision.Revision) record.Record {
	r.Restored, r.Ended = record.Restoration{UID: uid, Revision: rv}, false
	return r
}

// captured returns the record of the labels in t, which replaces r, nil if there is none. It notes
// no restore: the last one was of other labels.
func captured(t txn.Transaction, r *record.Record, n *Node, policy labels.Policy) record.Record {
	next := record.Record{Node: t.Node, Labels: t.Labels, Revision: t.Revision, Source: t.UID, Ended: t.Type == txn.Deleted}
	var before labels.Side
	switch {
	case r == nil:
	case isSourceOrRestored(*r, t.UID):
		before = seen(*r, policy)
	default: // a former machine's labels say nothing about this one
		before.Overruled = r.Overruled
	}
	heed(&next, whose(before, sideOf(t), t.Withdrawn))
	if r != nil {
		next.Withheld = withheldAfter(t, *r)
	}
	identify(&next, t.UID, r, n)
	return next
}

func isSourceOrRestored(r record.Record, uid types.UID) bool {
	return uid == r.Source || uid == r.Restored.UID
}

func nothing(reason string) Decision { return Decision{Action: Nothing, Reason: reason} }

func save(r record.Record, reason string) Decision {
	return Decision{Action: Save, Record: r, Reason: reason}
}
