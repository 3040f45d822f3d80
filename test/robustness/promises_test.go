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

// The promises, by their numbers in docs/design.md. A promise with several sentences has an error
// for each.
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
	// event checks an event of a node before it is applied, and returns an error if it breaks the
	// promise.
	event func(g *ghost, n *node, e event) error
	// end checks a node after the last event.
	end func(g *ghost, n *node) error
}

// promises are all promises. In each, event or end may be nil.
var promises = []promise{
	{name: errBrokeP1, event: (*ghost).checkRestore},
	{name: errBrokeP1Record, end: (*ghost).checkRecordAtEnd},
	{name: errBrokeP1Removal, event: (*ghost).checkRemoval},
	{name: errBrokeP2Age, event: (*ghost).checkAge},
	{name: errBrokeP2Order, event: (*ghost).checkOrder},
	{name: errBrokeP2Truth, event: (*ghost).checkTruth},
	{name: errBrokeP3, event: (*ghost).checkOverwrite},
	{name: errBrokeP4, event: (*ghost).checkDebt, end: (*ghost).checkDebtAtEnd},
	{name: errBrokeP4Queue, end: (*ghost).checkQueueAtEnd},
	{name: errBrokeP5, event: (*ghost).checkDrop},
	{name: errBrokeP6, event: (*ghost).checkWrite},
}

// interval is a range of revisions, including both ends.
type interval struct{ from, to uint64 }

func (i interval) has(revision uint64) bool { return i.from <= revision && revision <= i.to }

// ghost computes the expected labels.
type ghost struct {
	policy labels.Policy
	// blind are the revisions that possibly no watcher saw. If a node was deleted at one of them, its
	// changes at these revisions may be lost, but not earlier or recorded ones.
	blind []interval
	// protectorsEnd reports whether nodes are protected by processes that keep ending.
	protectorsEnd bool
}

// blindAt returns the interval in which the watchers were blind around a revision.
func (g *ghost) blindAt(revision uint64) (interval, bool) {
	for _, i := range g.blind {
		if i.has(revision) {
			return i, true
		}
	}
	return interval{}, false
}

// checkRestore: a restore sets the final labels of the last incarnation that owned its labels.
func (g *ghost) checkRestore(n *node, e event) error {
	if e.record != nil {
		return errors.Join(g.checkFounder(n, e), g.checkAdmission(n, e))
	}
	if e.node == nil || !isRestore(n.live, e.node) {
		return nil
	}
	had, given := n.live.sidesOf(n.live.last().labels), state{labels: e.node.labels, marker: e.node.marker}
	if saved, ok := n.latest(given.marker); ok {
		if planned, ok := g.plannedFor(n.live, saved, given.labels); ok {
			had = []labels.Side{planned}
			given.labels = g.policy.Restored(planned, labels.Side{Labels: saved})
		}
	}
	return g.checkGiven(n, n.live, had, given)
}

// plannedFor returns the earlier state of an incarnation for which a restore was planned: its patch
// may require only the labels that it replaces, so that an edit of others just before it stays.
func (g *ghost) plannedFor(i *incarnation, saved, given labelSet) (had labels.Side, ok bool) {
	now := i.last()
	isPlanned := func(s state, had labels.Side) bool {
		result := maps.Clone(now.labels)
		planned := g.policy.Restored(had, labels.Side{Labels: saved})
		for key, value := range labels.ChangesBetween(s.labels, planned).Labels {
			former, was := s.labels[key]
			if current, is := now.labels[key]; is != was || current != former {
				return false
			}
			if delete(result, key); value != nil {
				result[key] = *value
			}
		}
		return s.marker == now.marker && !maps.Equal(s.labels, now.labels) && maps.Equal(result, given)
	}
	for _, s := range i.states {
		for _, had := range i.sidesOf(s.labels) {
			if isPlanned(s, had) {
				return had, true
			}
		}
	}
	return labels.Side{}, false
}

// checkAdmission: so does the webhook, if the record confirms its answer.
func (g *ghost) checkAdmission(n *node, e event) error {
	i := n.newlyAdmitted(e.record.now)
	if i == nil {
		return nil
	}
	had, given := labels.Side{Labels: i.requested}, i.states[0]
	isGiven := func(saved labelSet) bool { return g.gives(saved, had, given) }
	if all := n.versions[given.marker]; len(all) > 1 && slices.ContainsFunc(all[:len(all)-1], isGiven) {
		return nil // the version got further edits after the answer of the webhook: a limit of the design
	}
	return g.checkGiven(n, i, []labels.Side{had}, given)
}

// gives reports whether saved labels make one side the given one.
func (g *ghost) gives(saved labelSet, had labels.Side, given state) bool {
	return maps.Equal(g.policy.Restored(had, labels.Side{Labels: saved}), given.labels)
}

// checkGiven checks the labels that an incarnation was given, which had one of these sides.
func (g *ghost) checkGiven(n *node, i *incarnation, had []labels.Side, given state) error {
	saved, ok := n.latest(given.marker)
	if !ok {
		return fmt.Errorf("restored from version %s, which the record never had", given.marker)
	}
	isGiven := func(had labels.Side) bool { return g.gives(saved, had, given) }
	if !slices.ContainsFunc(had, isGiven) {
		return fmt.Errorf("restored %v: version %s gives %v", given.labels, given.marker, g.policy.Restored(had[0], labels.Side{Labels: saved}))
	}
	owner := n.lastOwned
	if owner == nil || n.owns(i.uid) {
		return nil // it owned its labels: see P3
	}
	if floor := g.floor(i, owner); number(given.marker) < floor && !owner.hadSince(floor, saved) {
		return fmt.Errorf("restored from version %s: a change of incarnation %s at %d was recorded, or seen for sure", given.marker, short(owner.uid), floor)
	}
	ended := n.endedWithout(owner, i)
	if _, isBlind := g.blindAt(owner.deletedAt); !isBlind && !isWithEdits(saved, owner.last().labels, ended, i.addedAt) && !g.lacksLateEdits(owner, ended, saved) {
		return fmt.Errorf("restored %v: incarnation %s ended at %d with %v", saved, short(owner.uid), owner.deletedAt, owner.last().labels)
	}
	return nil
}

// lacksLateEdits reports whether only edits of a Node that was being deleted are missing. An edit
// during the release of the Node is lost if every process that saw it ends before it is stored.
// Faults cause that, and it is a limit of the design.
func (g *ghost) lacksLateEdits(owner *incarnation, ended []*incarnation, saved labelSet) bool {
	if !g.protectorsEnd {
		return false
	}
	for _, s := range slices.Backward(owner.states) {
		if isWithEdits(saved, s.labels, ended, 0) {
			return true
		}
		if !s.isEnding {
			return false
		}
	}
	return false
}

// checkFounder: while watchers run, the first record is of the first incarnation of a node.
func (g *ghost) checkFounder(n *node, e event) error {
	if n.record != nil || e.record.now == nil || n.first == nil || n.first.uid == e.record.now.Source {
		return nil
	}
	if _, isBlind := g.blindAt(n.first.deletedAt); isBlind {
		return nil
	}
	return fmt.Errorf("the first record is made of incarnation %s, the node's first was %s", short(e.record.now.Source), short(n.first.uid))
}

// floor returns the oldest version of an ended incarnation that its labels may be restored from:
// what was recorded before i was, and what was seen before the watchers were blind.
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

// isStored reports whether the effect of a transaction in the queue is stored, in the record or on
// the Node, or whether it has no effect.
func (g *ghost) isStored(n *node, name string) bool {
	t := n.queue[name]
	i := n.incarnations[t.UID]
	switch {
	case n.record == nil || i == nil:
		return false
	case t.Type == txn.Added:
		return n.live != i || i.ownedAt != 0
	case i.ownedAt == 0:
		return editsAreStored(n, t.Transaction)
	}
	edit := i.lastEdit(number(t.Revision.String()))
	return i.savedUpTo >= edit || number(n.record.Revision.String()) >= edit || g.isTooLate(n, i, t)
}

// isTooLate reports whether a transaction is about an incarnation whose end was not seen, and was
// stored after a later incarnation got its labels from the state known then. A watcher that was
// frozen for long stores such a transaction.
func (g *ghost) isTooLate(n *node, i *incarnation, t queued) bool {
	_, isBlind := g.blindAt(i.deletedAt)
	return isBlind && i.deletedAt != 0 && i.deletedAt < n.restoredAt && n.restoredAt < t.storedAt
}

// checkRemoval: when a transaction is removed, its final labels and its changes are in the record.
func (g *ghost) checkRemoval(n *node, e event) error {
	t := e.transaction
	if t == nil || !t.isRemoved || t.Type == txn.Added || g.isStored(n, t.Name()) {
		return nil
	}
	return fmt.Errorf("%s of incarnation %s at %s was removed, and the record has %s", t.Type, short(t.UID), t.Revision, version(n.record))
}

// checkDebt: the added transaction of an incarnation stays until the node has its labels or is
// gone.
func (g *ghost) checkDebt(n *node, e event) error {
	t := e.transaction
	if t == nil || !t.isRemoved || t.Type != txn.Added || g.isStored(n, t.Name()) {
		return nil
	}
	return fmt.Errorf("added of incarnation %s was removed, and that is there without its labels", short(t.UID))
}

// checkDebtAtEnd: every existing node has its labels.
func (g *ghost) checkDebtAtEnd(n *node) error {
	if n.live != nil && n.live.ownedAt == 0 {
		return fmt.Errorf("incarnation %s never got its labels; the record has %s", short(n.live.uid), version(n.record))
	}
	if n.live != nil && n.live.last().isGated {
		return fmt.Errorf("incarnation %s is left behind the startup taint", short(n.live.uid))
	}
	return nil
}

// checkRecordAtEnd: the final labels of a node are saved, or were restored from the record.
func (g *ghost) checkRecordAtEnd(n *node) error {
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

// checkQueueAtEnd: after all faults are healed and some time has passed, no work is left.
func (g *ghost) checkQueueAtEnd(n *node) error {
	for name, t := range n.queue {
		return fmt.Errorf("%s of incarnation %s is left, with %d others: %s", t.Type, short(t.UID), len(n.queue)-1, name)
	}
	return nil
}

// checkAge: the version of a record never goes back, and no restore is from an older version than
// before.
func (g *ghost) checkAge(n *node, e event) error {
	if e.record == nil || n.record == nil || e.record.now == nil {
		return nil
	}
	if before, after := *n.record, *e.record.now; isOlder(before, after) {
		return fmt.Errorf("version %s, restored at %q, replaces version %s, restored at %q",
			after.Revision, after.Restored.Revision, before.Revision, before.Restored.Revision)
	}
	return nil
}

// isOlder reports whether a record has an older state than its predecessor.
func isOlder(before, after record.Record) bool {
	return number(after.Revision.String()) < number(before.Revision.String()) ||
		after.Revision == before.Revision && number(after.Restored.Revision.String()) < number(before.Restored.Revision.String())
}

// checkOrder: when a transaction has its effect, the effect of every older one that was in the
// queue before it is stored or superseded.
func (g *ghost) checkOrder(n *node, e event) error {
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

// isEffect reports whether an event can be the effect of a transaction.
func isEffect(n *node, e event, t txn.Transaction) bool {
	switch {
	case e.node != nil:
		return isRestore(n.live, e.node) && t.Type == txn.Added && t.UID == e.node.uid
	case e.record == nil || e.record.now == nil || t.UID != e.record.now.Source || isEnding(n, e.record.now):
		return false
	case t.Type == txn.Added && n.record != nil:
		// A restore that was not noted is noted now: the record gets all labels of the node.
		return n.live != nil && n.live.uid == t.UID && n.live.last().marker == n.record.Revision.String()
	}
	isNew := n.record == nil || n.record.Revision != t.Revision
	return isNew && t.Revision == e.record.now.Revision
}

// isEnding reports whether a record is of a node that is kept until it is saved. The processor that
// keeps it does not wait for the queue.
func isEnding(n *node, r *record.Record) bool {
	source := n.incarnations[r.Source]
	if source == nil {
		return false
	}
	s, ok := source.at(number(r.Revision.String()))
	return ok && s.isEnding
}

// overtaken returns a transaction that should have had its effect before another one. A save
// supersedes earlier saves, so it only has to wait for a pending restore. A restore has to wait for
// all earlier transactions.
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

// checkTruth: the labels in a record are labels that its source had.
func (g *ghost) checkTruth(n *node, e event) error {
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
	case !ok && n.savesEdits(r):
	case !ok:
		return fmt.Errorf("incarnation %s never had version %s", short(r.Source), r.Revision)
	case !maps.Equal(s.labels, r.Labels):
		return fmt.Errorf("incarnation %s had %v at %s, the record says %v", short(r.Source), s.labels, r.Revision, r.Labels)
	}
	return nil
}

// checkOverwrite: a processor changes no label of a node that owns its labels.
func (g *ghost) checkOverwrite(n *node, e event) error {
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

// version describes the version of a record.
func version(r *record.Record) string {
	if r == nil {
		return "no version, as there is none"
	}
	return "version " + r.Revision.String()
}
