package preserve

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// Action is what is to be written.
type Action int

const (
	// Nothing is to be written: the transaction has its effect already, or never has one.
	Nothing Action = iota
	// Save means: store Decision.Record. It is a new one, newer labels, or only a note.
	Save
	// Restore means: make the Node's labels Decision.Labels and its marker Decision.Marker
	// in one write, conditional on the Node that was read; then store [Noted].
	Restore
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
	}
	return "unknown"
}

// Node is the live Node as the decision sees it.
type Node struct {
	UID             types.UID
	ResourceVersion string
	// Labels are the node's labels without the marker.
	Labels map[string]string
	Marker string
}

// NodeOf returns a Node as the decision sees it.
func NodeOf(n *metav1.PartialObjectMetadata) *Node {
	own, marker := labels.Split(n.Labels)
	return &Node{UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: own, Marker: marker}
}

// Decision says what to write, and why.
type Decision struct {
	Action Action
	// Record is what to store if the action is Save.
	Record record.Record
	// Labels and Marker are what the Node is to have if the action is Restore.
	Labels map[string]string
	Marker string
	// Reason is a constant text for logs and people.
	Reason string
}

// Owned says whether an incarnation has its saved labels: they came from it or
// were put back onto it, so what is on it now is what is to be kept.
func Owned(r record.Record, uid types.UID, marker string) bool {
	return isSourceOrRestored(r, uid) || marker == r.Version
}

// Applied says whether a record shows that a transaction has had its effect: what the incarnation had at that resourceVersion, or later,
// was saved, restored or noted. The decision is [Nothing] then, whatever the Node is, and stays so whatever is written to the record
// afterwards: a record that is not the latest can show it, too. False says nothing.
func Applied(t txn.Transaction, r record.Record) bool {
	switch t.UID {
	case r.Restored.UID:
		return !newer(t.ResourceVersion, r.Restored.ResourceVersion)
	case r.Source:
		return !newer(t.ResourceVersion, r.Version)
	}
	return false
}

// Folds says whether the effect of two transactions, one after the other, is that of the second alone: both show labels of the same
// incarnation, and no restore can come between them. With another marker the second may be of an incarnation that the record does not
// follow without the first.
func Folds(first, second txn.Transaction) bool {
	return first.Type != txn.Added && second.Type != txn.Added && first.UID == second.UID && first.Marker == second.Marker &&
		newer(second.ResourceVersion, first.ResourceVersion)
}

// RestoredUnnoted says whether a transaction shows an incarnation that got the labels of a record, which is not noted in it yet: of this
// one, or of a later one if this was read from a cache that is behind.
func RestoredUnnoted(t txn.Transaction, r record.Record) bool {
	return (t.Marker == r.Version || newer(t.Marker, r.Version)) && !isSourceOrRestored(r, t.UID)
}

// Decide returns the effect of transaction t, given the node's record, nil if
// there is none, and the live Node, nil if there is none. Only an Added
// transaction of a node with a record looks at the Node.
func Decide(t txn.Transaction, r *record.Record, n *Node, policy labels.Policy) Decision {
	switch {
	case r == nil && t.Type == txn.Added && !t.FoundsRecord:
		return nothing("no labels are saved for this node")
	case r == nil:
		return save(captured(t), "first labels of this node")
	case t.Type == txn.Added && !showsLater(t, *r):
		return decideRestore(t, *r, n, policy)
	}
	return decideSave(t, *r)
}

func decideSave(t txn.Transaction, r record.Record) Decision {
	switch {
	case !isLater(t, r):
		return nothing("an older event, or of an incarnation that never got its labels back")
	case !maps.Equal(t.Labels, r.Labels):
		return save(captured(t), "the labels changed")
	case t.UID == r.Source:
		// An event from between the two, recorded late, is older now. But the version stays: a restore from it may be
		// under way, if another watcher has recorded the next incarnation before this event.
		return save(noted(r, t.UID, t.ResourceVersion), "the same labels, seen later")
	}
	// The version moves on: a marker of before, copied with this node's labels onto the next incarnation, says nothing.
	return save(captured(t), "the same labels, seen later")
}

// showsLater says whether an Added transaction is of an incarnation that has its labels, and of a later state than the
// record has: a watcher that starts cannot know what others have recorded of a node that has no record yet.
func showsLater(t txn.Transaction, r record.Record) bool {
	return t.FoundsRecord && isSourceOrRestored(r, t.UID) && isLater(t, r)
}

// isLater says whether t shows a later state of the incarnation that the record follows than the record has. Nothing is that
// was before a restore onto the next one: its labels are the record's, and may have been edited since.
func isLater(t txn.Transaction, r record.Record) bool {
	if !newer(t.ResourceVersion, r.Restored.ResourceVersion) {
		return false
	}
	switch t.UID {
	case r.Source:
		return newer(t.ResourceVersion, r.Version)
	case r.Restored.UID:
		return true
	}
	return t.Marker == r.Version // the restore onto this incarnation is done, and not noted yet
}

func decideRestore(t txn.Transaction, r record.Record, n *Node, policy labels.Policy) Decision {
	switch {
	case n == nil || n.UID != t.UID:
		return nothing("that incarnation is gone")
	case isSourceOrRestored(r, n.UID):
		return nothing("this incarnation has its labels")
	case n.Marker == r.Version:
		return decideNote(r, n)
	}
	return Decision{
		Action: Restore,
		Labels: policy.Restored(n.Labels, r.Labels),
		Marker: r.Version,
		Reason: "the node returned without its labels",
	}
}

// decideNote is for a restore that was done and is not noted.
func decideNote(r record.Record, n *Node) Decision {
	if !newer(n.ResourceVersion, r.Restored.ResourceVersion) {
		return nothing("an incarnation after this one has its labels already")
	}
	return save(Noted(r, *n), "the restore was done but not noted")
}

// Noted returns the record after a restore onto n, which is the Node as the restore left it, or any later
// state of that incarnation. If the labels of the Node are the saved ones, the record is the same with a note; if they are
// not, by live labels or an edit since, they are what is to be kept. The Node's resourceVersion counts and
// not the transaction's: edits between the add and the restore do not.
func Noted(r record.Record, n Node) record.Record {
	if !maps.Equal(n.Labels, r.Labels) {
		return record.Record{Node: r.Node, Labels: n.Labels, Version: n.ResourceVersion, Source: n.UID}
	}
	return noted(r, n.UID, n.ResourceVersion)
}

// Given returns the record of a node whose labels come from people and not from an incarnation. now is the resourceVersion of all
// Nodes at a moment when there was none of that name, or none that is to keep its own labels: no event of before is later than the record, and
// no marker of before agrees with it. So the next incarnation that is seen to be added gets these labels, and late transactions of
// former ones do nothing.
func Given(node string, given map[string]string, now string) record.Record {
	return record.Record{Node: node, Labels: given, Version: now}
}

// noted is the same record with a note of the last incarnation that was seen to have its labels.
func noted(r record.Record, uid types.UID, rv string) record.Record {
	r.Restored = record.Restoration{UID: uid, ResourceVersion: rv}
	return r
}

// captured is the record of the labels in t. It forgets the last restore: that was of other labels.
func captured(t txn.Transaction) record.Record {
	return record.Record{Node: t.Node, Labels: t.Labels, Version: t.ResourceVersion, Source: t.UID}
}

func isSourceOrRestored(r record.Record, uid types.UID) bool {
	return uid == r.Source || uid == r.Restored.UID
}

func nothing(reason string) Decision { return Decision{Action: Nothing, Reason: reason} }

func save(r record.Record, reason string) Decision {
	return Decision{Action: Save, Record: r, Reason: reason}
}

// newer says whether rv is after other; other may be "", which everything is after. Both come from
// [txn.Parse] and [record.Parse], so they are well-formed; if one were not, it would count as not newer.
func newer(rv, other string) bool {
	if other == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(rv, other)
	return err == nil && order > 0
}
