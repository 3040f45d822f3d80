package robustness

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// labelSet contains labels without the marker.
type labelSet = map[string]string

// event is one write of an object that the promises concern. One of the three pointers is set.
type event struct {
	// revision is the revision in etcd, which is also the resourceVersion of the written object.
	revision    uint64
	name        string // the name of the node
	node        *nodeWrite
	record      *recordWrite
	transaction *transactionWrite
}

// nodeWrite is a state of a Node, or its deletion.
type nodeWrite struct {
	uid       types.UID
	labels    labelSet
	marker    string
	isDeleted bool // the labels are then the final ones
	// isEnding reports whether the Node is being deleted and a finalizer keeps it.
	isEnding bool
	// isService reports whether a processor wrote it, according to managedFields.
	isService bool
	// isGated reports whether it has the startup taint.
	isGated bool
	// requested are its initial labels in the request, without the labels that the webhook added; nil:
	// the webhook has not set the marker.
	requested labelSet
}

// recordWrite is a state of a record; nil: it was removed.
type recordWrite struct{ now *record.Record }

// transactionWrite is a transaction that was stored or removed.
type transactionWrite struct {
	txn.Transaction
	isRemoved bool
}

// state is a state of a Node, with its revision.
type state struct {
	revision uint64
	labels   labelSet
	marker   string
	isEnding bool
	isGated  bool
}

// incarnation is one life of a node.
type incarnation struct {
	uid    types.UID
	states []state
	// requested are its initial labels in the request, without the labels and the marker that the
	// webhook added; nil: the webhook has not set the marker.
	requested labelSet
	deletedAt uint64 // zero while it lives
	// ownedAt is the revision from which it owns its labels, or zero if it does not.
	ownedAt uint64
	// addedAt is the revision at which its first added transaction was stored, or zero.
	addedAt uint64
	// savedUpTo is its latest revision that a record has had as its version or in a note.
	savedUpTo uint64
	// edited are the keys that users have edited on it, in the first transaction that has any, and
	// editedAt is the revision at which that was stored.
	edited   labels.Keys
	editedAt uint64
	// recorded are all transactions about it that were ever stored.
	recorded []storedTxn
}

type storedTxn struct {
	storedAt, resourceVersion uint64
	typ                       txn.Type
}

func (i *incarnation) last() state { return i.states[len(i.states)-1] }

// sidesOf returns what a restore may start from, given the labels of one of its states: what users
// have edited since an addition that was recorded stays. So does a key that they have edited and set
// back, if the states in the queue show it. P3 covers edits after a restore.
func (i *incarnation) sidesOf(all labelSet) []labels.Side {
	own := i.ownOf(all)
	var sides []labels.Side
	for _, t := range i.recorded {
		before, isKnown := i.at(t.resourceVersion)
		if t.typ != txn.Added || !isKnown || i.ownedAt != 0 {
			continue
		}
		edited := differing(before.labels, all)
		sides = append(sides, labels.Side{Labels: own, Edited: edited})
		for _, later := range i.recorded {
			if s, isKnown := i.at(later.resourceVersion); isKnown && later.resourceVersion > t.resourceVersion {
				edited = edited.Union(differing(before.labels, s.labels))
				sides = append(sides, labels.Side{Labels: own, Edited: edited})
			}
		}
	}
	if len(sides) == 0 {
		return []labels.Side{{Labels: own}}
	}
	return sides
}

func differing(a, b labelSet) labels.Keys {
	return labels.KeysOf(slices.Values(labels.Differing(a, b)))
}

// ownOf returns the labels of one of its states, without the labels that only the webhook has set.
func (i *incarnation) ownOf(all labelSet) labelSet {
	if i.requested == nil {
		return all
	}
	own := maps.Clone(all)
	for key, value := range i.states[0].labels {
		requested, isRequested := i.requested[key]
		if isGiven := !isRequested || requested != value; isGiven && own[key] == value {
			delete(own, key)
		}
	}
	return own
}

// at returns the state of the incarnation at a resourceVersion, which may be the resourceVersion of
// its delete.
func (i *incarnation) at(resourceVersion uint64) (state, bool) {
	if resourceVersion == i.deletedAt && resourceVersion != 0 {
		return i.last(), true
	}
	for _, s := range slices.Backward(i.states) {
		if s.revision == resourceVersion {
			return s, true
		}
	}
	return state{}, false
}

// lastEdit returns the revision of the last change of labels up to a revision, or 0. A restore is
// not a change, and changes before it do not count.
func (i *incarnation) lastEdit(upTo uint64) uint64 {
	last := uint64(0)
	for n := 1; n < len(i.states) && i.states[n].revision <= upTo; n++ {
		if s := i.states[n]; s.revision > i.ownedAt && !maps.Equal(s.labels, i.states[n-1].labels) {
			last = s.revision
		}
	}
	return last
}

// hadSince reports whether the incarnation had these labels at a revision or later.
func (i *incarnation) hadSince(revision uint64, own labelSet) bool {
	for n, s := range i.states {
		isOver := n+1 < len(i.states) && i.states[n+1].revision <= revision
		if !isOver && maps.Equal(s.labels, own) {
			return true
		}
	}
	return false
}

// queued is a transaction in the queue.
type queued struct {
	txn.Transaction
	storedAt uint64
}

// node is the state of a node according to the history so far.
type node struct {
	incarnations map[types.UID]*incarnation
	first, live  *incarnation
	// lastOwned is the latest incarnation that has ended and owned its labels.
	lastOwned *incarnation
	// restoredAt is the revision of the latest restore.
	restoredAt uint64
	record     *record.Record
	// versions are the labels of every version of the record so far: more than one if the version got
	// further edits of the end that it has already, see [node.completesEdits].
	versions map[string][]labelSet
	queue    map[string]queued // by name
}

func newNode() *node {
	return &node{incarnations: map[types.UID]*incarnation{}, versions: map[string][]labelSet{}, queue: map[string]queued{}}
}

// owns reports whether an incarnation owns its labels according to the history.
func (n *node) owns(uid types.UID) bool {
	i := n.incarnations[uid]
	return i != nil && i.ownedAt != 0
}

// apply applies an event to the node.
func (n *node) apply(e event) {
	switch {
	case e.node != nil:
		n.applyNode(e.revision, e.node)
	case e.record != nil:
		n.applyRecord(e.record.now)
	case e.transaction != nil:
		n.applyTransaction(e.revision, e.transaction)
	}
}

func (n *node) applyNode(revision uint64, w *nodeWrite) {
	if w.isDeleted {
		n.live.deletedAt = revision
		if n.live.ownedAt != 0 {
			n.lastOwned = n.live
		}
		n.live = nil
		return
	}
	after := state{revision: revision, labels: w.labels, marker: w.marker, isEnding: w.isEnding, isGated: w.isGated}
	if n.live == nil {
		n.live = &incarnation{uid: w.uid, states: []state{after}, requested: w.requested}
		n.incarnations[w.uid] = n.live
		if n.first == nil {
			n.first = n.live
		}
		return
	}
	if isRestore(n.live, w) {
		n.live.ownedAt, n.restoredAt = revision, revision
	}
	if before := n.live.last(); maps.Equal(before.labels, after.labels) {
		after.labels = before.labels // share the labels, so that heartbeats take little memory
	}
	n.live.states = append(n.live.states, after)
}

// isRestore reports whether a write of a live Node is a restore: users only remove markers.
func isRestore(live *incarnation, w *nodeWrite) bool {
	return live != nil && live.uid == w.uid && !w.isDeleted && w.marker != "" && w.marker != live.last().marker
}

func (n *node) applyRecord(now *record.Record) {
	if n.record == nil && now != nil {
		// The incarnation of the first record owns its labels from its creation.
		if founder := n.incarnations[now.Source]; founder != nil && founder.ownedAt == 0 {
			founder.ownedAt = founder.states[0].revision
			if founder.deletedAt != 0 && n.lastOwned == nil {
				n.lastOwned = founder
			}
		}
	}
	if i := n.newlyAdmitted(now); i != nil {
		i.ownedAt = i.states[0].revision
		n.restoredAt = max(n.restoredAt, i.ownedAt)
		if i.deletedAt != 0 {
			n.lastOwned = i
		}
	}
	n.record = now
	if now != nil {
		version := now.Revision.String()
		if saved, ok := n.latest(version); !ok || !maps.Equal(saved, now.Labels) {
			n.versions[version] = append(n.versions[version], now.Labels)
		}
		n.save(now.Source, now.Revision.String())
		n.save(now.Restored.UID, now.Restored.Revision.String())
	}
}

// latest returns the labels of a version of the record, if it has had that.
func (n *node) latest(version string) (saved labelSet, ok bool) {
	all := n.versions[version]
	if len(all) == 0 {
		return nil, false
	}
	return all[len(all)-1], true
}

// newlyAdmitted returns the incarnation for which the record first shows that it has owned its
// labels since its creation: the webhook may have used an earlier record. It returns nil if there
// is none.
func (n *node) newlyAdmitted(now *record.Record) *incarnation {
	if now == nil {
		return nil
	}
	for _, uid := range []types.UID{now.Source, now.Restored.UID} {
		if i := n.incarnations[uid]; i != nil && i.ownedAt == 0 && i.requested != nil && i.states[0].marker != labels.Pending {
			return i
		}
	}
	return nil
}

func (n *node) save(uid types.UID, resourceVersion string) {
	if i := n.incarnations[uid]; i != nil {
		i.savedUpTo = max(i.savedUpTo, number(resourceVersion))
	}
}

func (n *node) applyTransaction(revision uint64, w *transactionWrite) {
	if w.isRemoved {
		delete(n.queue, w.Name())
		return
	}
	n.queue[w.Name()] = queued{Transaction: w.Transaction, storedAt: revision}
	i := n.incarnations[w.UID]
	if i == nil {
		return
	}
	if w.Type == txn.Added && i.addedAt == 0 {
		i.addedAt = revision
	}
	if i.editedAt == 0 && w.Edited != "" {
		i.edited, i.editedAt = w.Edited, revision
	}
	i.recorded = append(i.recorded, storedTxn{storedAt: revision, resourceVersion: number(w.Revision.String()), typ: w.Type})
}

// number returns a resourceVersion as a revision of etcd, or 0 if it is empty.
func number(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
