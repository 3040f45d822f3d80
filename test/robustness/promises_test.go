package robustness

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// The promises, by their numbers in docs/design.md. One with several sentences has an error for each.
var (
	errBrokeP1        = errors.New("P1: the labels that a node had when it was deleted are what its next incarnation gets")
	errBrokeP1Record  = errors.New("P1: in the end the record of a node has the labels of the node")
	errBrokeP1Removal = errors.New("P1: a transaction leaves the queue only when its effect is stored")
	errBrokeP2Age     = errors.New("P2: no effect of an older event comes after that of a newer one")
	errBrokeP2Order   = errors.New("P2: the effects on a node come in the order of its queue")
	errBrokeP2Truth   = errors.New("P2: a record holds the labels that its source had at its version")
	errBrokeP3        = errors.New("P3: what is edited on a node after its restore is never overwritten")
	errBrokeP4        = errors.New("P4: a restore is owed until it is done, or until that incarnation is gone")
	errBrokeP4Queue   = errors.New("P4: in the end every queue is empty")
	errBrokeP5        = errors.New("P5: nothing that a fresh read shows to be undone is dropped")
	errBrokeP6        = errors.New("P6: every write is conditional on what it was decided from")
)

// promise checks one promise.
type promise struct {
	name error
	// see looks at an event of a node before it is applied, and says what it breaks.
	see func(g *ghost, n *node, e event) error
	// end looks at a node when there are no more events.
	end func(g *ghost, n *node) error
}

// promises are all of them. In each, see or end may be nil.
var promises = []promise{
	{name: errBrokeP1, see: (*ghost).seesRestore},
	{name: errBrokeP1Record, end: (*ghost).seesRecordInTheEnd},
	{name: errBrokeP1Removal, see: (*ghost).seesRemoval},
	{name: errBrokeP2Age, see: (*ghost).seesAge},
	{name: errBrokeP2Order, see: (*ghost).seesOrder},
	{name: errBrokeP2Truth, see: (*ghost).seesTruth},
	{name: errBrokeP3, see: (*ghost).seesOverwrite},
	{name: errBrokeP4, see: (*ghost).seesDebt, end: (*ghost).seesDebtInTheEnd},
	{name: errBrokeP4Queue, end: (*ghost).seesQueueInTheEnd},
	{name: errBrokeP5, see: (*ghost).seesDrop},
	{name: errBrokeP6, see: (*ghost).seesWrite},
}

// interval is a range of revisions, both ends belong to it.
type interval struct{ from, to uint64 }

func (i interval) has(revision uint64) bool { return i.from <= revision && revision <= i.to }

// ghost knows what the labels ought to be.
type ghost struct {
	policy labels.Policy
	// blind are the revisions that no watcher may have seen. What happened to a node that was
	// deleted among them may be lost, but not what was seen before or was recorded.
	blind []interval
	// protectorsEnd says that nodes are protected, by processes that end all the time.
	protectorsEnd bool
}

// blindAt returns when the watchers were blind around a revision.
func (g *ghost) blindAt(revision uint64) (interval, bool) {
	for _, i := range g.blind {
		if i.has(revision) {
			return i, true
		}
	}
	return interval{}, false
}

// seesRestore: what is put onto a node is what its last incarnation that had its labels had in the end.
func (g *ghost) seesRestore(n *node, e event) error {
	if e.record != nil {
		return errors.Join(g.seesFounder(n, e), g.seesAdmission(n, e))
	}
	if e.node == nil || !isRestore(n.live, e.node) {
		return nil
	}
	return g.seesGiven(n, n.live, n.live.own(), state{labels: e.node.labels, marker: e.node.marker})
}

// seesAdmission: so is what the webhook has put onto a node, if the record says that it was the right thing.
func (g *ghost) seesAdmission(n *node, e event) error {
	i := n.newlyAdmitted(e.record.now)
	if i == nil {
		return nil
	}
	return g.seesGiven(n, i, i.requested, i.states[0])
}

// seesGiven looks at what an incarnation that had some labels was given.
func (g *ghost) seesGiven(n *node, i *incarnation, had labelSet, given state) error {
	saved, ok := n.versions[given.marker]
	if !ok {
		return fmt.Errorf("restored from version %s, which the record never had", given.marker)
	}
	if want := g.policy.Restored(labels.Side{Labels: had}, labels.Side{Labels: saved}); !maps.Equal(want, given.labels) {
		return fmt.Errorf("restored %v: version %s gives %v", given.labels, given.marker, want)
	}
	owner := n.lastOwned
	if owner == nil || n.owns(i.uid) {
		return nil // it had its labels: see P3
	}
	if floor := g.floor(i, owner); number(given.marker) < floor && !owner.hadSince(floor, saved) {
		return fmt.Errorf("restored from version %s: a change of incarnation %s at %d was recorded, or seen for sure", given.marker, short(owner.uid), floor)
	}
	if _, isBlind := g.blindAt(owner.deletedAt); !isBlind && !maps.Equal(saved, owner.last().labels) && !g.lacksLateEdits(owner, saved) {
		return fmt.Errorf("restored %v: incarnation %s ended at %d with %v", saved, short(owner.uid), owner.deletedAt, owner.last().labels)
	}
	return nil
}

// lacksLateEdits says whether only edits are missing of a Node that was being deleted. One in the moment in which the Node is let
// go is lost if every process that saw it ends before it is stored: that is a limit of the design, and what faults bring about.
func (g *ghost) lacksLateEdits(owner *incarnation, saved labelSet) bool {
	if !g.protectorsEnd {
		return false
	}
	for _, s := range slices.Backward(owner.states) {
		if maps.Equal(s.labels, saved) {
			return true
		}
		if !s.isEnding {
			return false
		}
	}
	return false
}

// seesFounder: while somebody watches, it is the first incarnation of a node that the first record is made of.
func (g *ghost) seesFounder(n *node, e event) error {
	if n.record != nil || e.record.now == nil || n.first == nil || n.first.uid == e.record.now.Source {
		return nil
	}
	if _, isBlind := g.blindAt(n.first.deletedAt); isBlind {
		return nil
	}
	return fmt.Errorf("the first record is made of incarnation %s, the node's first was %s", short(e.record.now.Source), short(n.first.uid))
}

// floor is the oldest version that the labels of an incarnation that ended may be restored from: what
// was recorded of it before i was, and what was seen of it before the watchers were blind.
func (g *ghost) floor(i, owner *incarnation) uint64 {
	floor := uint64(0)
	for _, t := range owner.recorded {
		if t.storedAt < i.addedAt && t.resourceVersion > owner.ownedAt && t.typ != txn.Added {
			floor = max(floor, t.resourceVersion)
		}
	}
	if blind, isBlind := g.blindAt(owner.deletedAt); isBlind {
		floor = max(floor, owner.lastEdit(max(blind.from, 1)-1))
	}
	return floor
}

// isStored says whether the effect of a transaction in the queue is stored, in the record or on the Node, or whether it has none.
func (g *ghost) isStored(n *node, name string) bool {
	t := n.queue[name]
	i := n.incarnations[t.UID]
	switch {
	case n.record == nil || i == nil:
		return false
	case t.Type == txn.Added:
		return n.live != i || i.ownedAt != 0
	case i.ownedAt == 0:
		return true // seen of an incarnation that never had its labels
	}
	edit := i.lastEdit(number(t.Revision.String()))
	return i.savedUpTo >= edit || number(n.record.Revision.String()) >= edit || g.isTooLate(n, i, t)
}

// isTooLate says whether a transaction tells of an incarnation that ended unseen, and was stored after a later one had got its
// labels, from what was known then: a watcher that was frozen for long tells the last that it saw.
func (g *ghost) isTooLate(n *node, i *incarnation, t queued) bool {
	_, isBlind := g.blindAt(i.deletedAt)
	return isBlind && i.deletedAt != 0 && i.deletedAt < n.restoredAt && n.restoredAt < t.storedAt
}

// seesRemoval: the last labels and the changes that a transaction holds are in the record when it is removed.
func (g *ghost) seesRemoval(n *node, e event) error {
	t := e.transaction
	if t == nil || !t.isRemoved || t.Type == txn.Added || g.isStored(n, t.Name()) {
		return nil
	}
	return fmt.Errorf("%s of incarnation %s at %s was removed, and the record has %s", t.Type, short(t.UID), t.Revision, version(n.record))
}

// seesDebt: the added transaction of an incarnation stays until the node has its labels or is gone.
func (g *ghost) seesDebt(n *node, e event) error {
	t := e.transaction
	if t == nil || !t.isRemoved || t.Type != txn.Added || g.isStored(n, t.Name()) {
		return nil
	}
	return fmt.Errorf("added of incarnation %s was removed, and that is there without its labels", short(t.UID))
}

// seesDebtInTheEnd: every node that is there has its labels.
func (g *ghost) seesDebtInTheEnd(n *node) error {
	if n.live != nil && n.live.ownedAt == 0 {
		return fmt.Errorf("incarnation %s never got its labels; the record has %s", short(n.live.uid), version(n.record))
	}
	if n.live != nil && n.live.last().isGated {
		return fmt.Errorf("incarnation %s is left behind the startup taint", short(n.live.uid))
	}
	return nil
}

// seesRecordInTheEnd: what a node has in the end is saved, or was put back from there.
func (g *ghost) seesRecordInTheEnd(n *node) error {
	switch {
	case n.live == nil || n.live.ownedAt == 0:
		return nil
	case n.record == nil:
		return errors.New("there is no record")
	case !maps.Equal(n.record.Labels, n.live.last().labels):
		return fmt.Errorf("the record has %v, the node %v", n.record.Labels, n.live.last().labels)
	}
	return nil
}

// seesQueueInTheEnd: when everything is healed and time has passed, nothing is left to do.
func (g *ghost) seesQueueInTheEnd(n *node) error {
	for name, t := range n.queue {
		return fmt.Errorf("%s of incarnation %s is left, with %d others: %s", t.Type, short(t.UID), len(n.queue)-1, name)
	}
	return nil
}

// seesAge: the version of a record never goes back, and nothing is restored from an older one than before.
func (g *ghost) seesAge(n *node, e event) error {
	if e.record == nil || n.record == nil || e.record.now == nil {
		return nil
	}
	if before, after := *n.record, *e.record.now; isOlder(before, after) {
		return fmt.Errorf("version %s, restored at %q, replaces version %s, restored at %q",
			after.Revision, after.Restored.Revision, before.Revision, before.Restored.Revision)
	}
	return nil
}

// isOlder says whether a record shows less than the one before it.
func isOlder(before, after record.Record) bool {
	return number(after.Revision.String()) < number(before.Revision.String()) ||
		after.Revision == before.Revision && number(after.Restored.Revision.String()) < number(before.Restored.Revision.String())
}

// seesOrder: when the effect of a transaction comes, that of every older one is stored that was in the queue before it, or is superseded by it.
func (g *ghost) seesOrder(n *node, e event) error {
	var broken error
	for _, cause := range n.queue {
		if !isEffect(n, e, cause.Transaction) {
			continue
		}
		missing := g.overtaken(n, cause, e.record != nil)
		if missing == nil {
			return nil
		}
		broken = fmt.Errorf("the effect of %s at %s comes, that of %s at %s was in the queue before it and has not come",
			cause.Type, cause.Revision, missing.Type, missing.Revision)
	}
	return broken
}

// isEffect says whether an event can be the effect of a transaction.
func isEffect(n *node, e event, t txn.Transaction) bool {
	switch {
	case e.node != nil:
		return isRestore(n.live, e.node) && t.Type == txn.Added && t.UID == e.node.uid
	case e.record == nil || e.record.now == nil || t.UID != e.record.now.Source || isEnding(n, e.record.now):
		return false
	case t.Type == txn.Added && n.record != nil:
		// A restore that was not noted, and is now: the record gets all that the node has.
		return n.live != nil && n.live.uid == t.UID && n.live.last().marker == n.record.Revision.String()
	}
	isNew := n.record == nil || n.record.Revision != t.Revision
	return isNew && t.Revision == e.record.now.Revision
}

// isEnding says whether a record is of a node that is kept until it is saved. The processor that keeps it does not wait for the queue.
func isEnding(n *node, r *record.Record) bool {
	source := n.incarnations[r.Source]
	if source == nil {
		return false
	}
	s, ok := source.at(number(r.Revision.String()))
	return ok && s.isEnding
}

// overtaken returns a transaction that should have had its effect before another one. A save supersedes the saves before it: of these
// it has to wait for nothing, but for the restore that is owed to a node. A restore has to wait for all of them.
func (g *ghost) overtaken(n *node, by queued, isSave bool) *queued {
	for _, t := range n.queue {
		if t.storedAt >= by.storedAt || number(t.Revision.String()) >= number(by.Revision.String()) {
			continue
		}
		if isSave && (t.Type != txn.Added || n.record == nil) {
			continue
		}
		if !g.isStored(n, t.Name()) {
			return &t
		}
	}
	return nil
}

// seesTruth: nobody ever had other labels than a record says.
func (g *ghost) seesTruth(n *node, e event) error {
	if e.record == nil || e.record.now == nil {
		return nil
	}
	r := e.record.now
	source := n.incarnations[r.Source]
	if source == nil {
		return fmt.Errorf("its source %s was never there", r.Source)
	}
	s, ok := source.at(number(r.Revision.String()))
	switch {
	case !ok:
		return fmt.Errorf("incarnation %s never had version %s", short(r.Source), r.Revision)
	case !maps.Equal(s.labels, r.Labels):
		return fmt.Errorf("incarnation %s had %v at %s, the record says %v", short(r.Source), s.labels, r.Revision, r.Labels)
	}
	return nil
}

// seesOverwrite: a processor changes no label of a node that has its labels.
func (g *ghost) seesOverwrite(n *node, e event) error {
	if e.node == nil || n.live == nil || e.node.isDeleted {
		return nil
	}
	before := n.live.last()
	switch isChanged := !maps.Equal(before.labels, e.node.labels); {
	case isRestore(n.live, e.node) && n.owns(n.live.uid):
		return fmt.Errorf("restored %v onto incarnation %s, which had its labels since %d: %v", e.node.labels, short(n.live.uid), n.live.ownedAt, before.labels)
	case e.node.isService && isChanged && !isRestore(n.live, e.node):
		return fmt.Errorf("a processor wrote %v over %v, and no marker", e.node.labels, before.labels)
	}
	return nil
}

// version describes what a record is of.
func version(r *record.Record) string {
	if r == nil {
		return "no version, as there is none"
	}
	return "version " + r.Revision.String()
}
