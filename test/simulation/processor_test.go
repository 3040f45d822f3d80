package simulation

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/txn"
)

// maxConflicts is how often the protection of a node begins again at once after a conflict.
const maxConflicts = 10

// processorActor is a processor without locks: the real [apply.Applier] on the API server of the simulation.
type processorActor struct {
	actor

	applier *apply.Applier

	// The caches are watches of their own: each may be behind the others, and all of them behind the API server.
	queue    []*storedTxn
	record   *storedRecord
	node     *metav1.PartialObjectMetadata
	position int // of the next event of the Node

	isEdited bool              // the Node was edited while it was being deleted
	late     []txn.Transaction // the ends of such Nodes, until they are stored

	done   []int // removed, but perhaps in the cache for a moment
	isIdle bool

	read            int // which of the records was the present one when it was read last
	removals, began int // removals of the record, when it was read and when the work on the batch began

	ending ending // that it saves

	broken breaks // what the mutants among the doors to the API server need
}

// down forgets all that a process has in its memory.
func (a *processorActor) down() {
	a.done, a.late, a.isIdle, a.removals = a.done[:0], a.late[:0], false, 0
	a.position, a.read = 0, 0
	a.ending = ending{}
	a.broken = breaks{}
}

// run is one life of a processor.
func (a *processorActor) run() {
	a.applier = &apply.Applier{Nodes: a, Records: recordsOf{a}, Policy: policy, Observer: a, Plan: a.mutantPlan()}
	a.queue, a.record, a.node = a.mutantQueue(a.world.queue), a.world.record, a.world.node
	a.position = len(a.world.events)
	a.isEdited = a.node != nil && a.node.DeletionTimestamp != nil
	for {
		a.pause()
		a.refresh()
		a.isIdle = false // until it is known that nothing is to be done: other turns come between
		if a.settings.variant == protected && a.protect() {
			continue
		}
		if batch := a.batch(); len(batch) > 0 {
			a.drain(batch)
		} else {
			a.isIdle = !a.look()
		}
	}
}

// refresh brings the caches up to date.
func (a *processorActor) refresh() {
	if !a.choices.happens(a.settings.stale) {
		a.record = a.world.record
	}
	if !a.choices.happens(a.settings.stale) {
		a.queue = a.mutantQueue(a.world.queue)
	}
	if !a.choices.happens(a.settings.stale) {
		a.watch()
	}
}

// watch takes what the events of the Node show.
func (a *processorActor) watch() {
	for _, e := range a.world.events[a.position:] {
		a.position++
		before := a.node
		switch isKnown := before != nil && before.UID == e.node.UID; {
		case !e.isDelete:
			isChanged := !isKnown || !maps.Equal(before.Labels, e.node.Labels)
			a.isEdited = a.isEdited && isKnown || e.node.DeletionTimestamp != nil && isChanged
			a.node = e.node
			continue
		case a.isEdited && isKnown && !a.mutant.ignoresLateEdits:
			a.late = append(a.late, txn.EndSeen(e.node))
		}
		a.node, a.isEdited = nil, false
	}
}

// batch returns the transactions in the cache that are not applied, oldest first.
func (a *processorActor) batch() []*storedTxn {
	var batch []*storedTxn
	for _, t := range a.queue {
		if !slices.Contains(a.done, t.uid) {
			batch = append(batch, t)
		}
	}
	if a.mutant.newestFirst && len(batch) > 0 {
		batch = batch[len(batch)-1:]
	}
	return batch
}

// drain applies transactions and removes those that are settled. It stops at an error, to try again.
func (a *processorActor) drain(batch []*storedTxn) {
	transactions := make([]txn.Transaction, len(batch))
	for i, t := range batch {
		transactions[i] = t.Transaction
		a.tell("takes %s %s@%s", t.Type, t.UID, t.Revision)
		if a.mutant.removesFirst {
			a.remove(t)
		}
	}
	a.began = a.world.removals
	settled, _ := a.apply(transactions)
	for _, t := range batch[:settled] {
		if !a.remove(t) {
			return
		}
		a.done = append(a.done, t.uid)
	}
}

// apply is the real thing.
func (a *processorActor) apply(transactions []txn.Transaction) (settled int, err error) {
	a.broken = breaks{transactions: transactions}
	return a.applier.Apply(context.Background(), transactions, func(context.Context, []txn.Transaction) error { return nil })
}

func (a *processorActor) remove(t *storedTxn) bool {
	a.pause()
	if a.mutant.removesByName {
		if at, ok := a.world.find(t.Transaction); ok {
			t = a.world.queue[at]
		}
	}
	a.checkRemoval(t)
	a.world.remove(t)
	a.tell("removes %s %s@%s", t.Type, t.UID, t.Revision)
	return !a.isLost()
}

// checkRemoval: a transaction leaves the queue only when its effect is stored, so by the same rules there is none left.
func (a *processorActor) checkRemoval(t *storedTxn) {
	if at, ok := a.world.find(t.Transaction); !ok || a.world.queue[at] != t || a.began < a.world.removals {
		return // another processor removed it, or it was decided about before a removal of the record
	}
	d := a.decision(t.Transaction, a.world.record.get(), a.world.liveNode())
	if hasEffect(t.Transaction, a.world.record.get(), d) && !a.world.isOpenedByAnother(t.Transaction, d) {
		a.world.breaks(errBrokeP1, "%s %s@%s is removed, and its effect is not stored", t.Type, t.UID, t.Revision)
	}
}

// isOvertaken says whether the record was removed after the decision that is carried out now.
func (a *processorActor) isOvertaken() bool { return a.removals < a.world.removals }

// isLost says whether the answer to a write that was done does not come.
func (a *processorActor) isLost() bool {
	if !a.choices.happens(a.settings.lostWrite) {
		return false
	}
	a.tell("  and the answer is lost")
	return true
}

var (
	_ apply.Nodes    = (*processorActor)(nil)
	_ apply.Records  = (*recordsOf)(nil)
	_ apply.Observer = (*processorActor)(nil)
)

// Applied implements [apply.Observer].
func (a *processorActor) Applied(_ context.Context, t txn.Transaction, d preserve.Decision, _ *metav1.PartialObjectMetadata) {
	a.tell("  %s %s@%s: %s, %s", t.Type, t.UID, t.Revision, d.Action, d.Reason)
}

// Withheld implements [apply.Observer].
func (a *processorActor) Withheld(_ context.Context, t txn.Transaction, held preserve.Held) {
	a.tell("  withholds %v from %s: %s", held.Keys, t.UID, held.Why)
}

// Conflicted implements [apply.Observer].
func (a *processorActor) Conflicted(error) {
	a.tell("  conflict")
	a.broken.conflicted = true
}

// TooLarge implements [apply.Observer].
func (a *processorActor) TooLarge(context.Context, txn.Transaction, error) {}

// Get implements [apply.Nodes].
func (a *processorActor) Get(context.Context, string) (*metav1.PartialObjectMetadata, error) {
	a.broken.before = a.world.record
	a.pause()
	a.tell("  reads the Node: %s", nodeText(a.world.node))
	return a.world.node, nil
}

// Relabel implements [apply.Nodes].
func (a *processorActor) Relabel(_ context.Context, read *metav1.PartialObjectMetadata, wanted map[string]string) (*metav1.PartialObjectMetadata, error) {
	a.pause()
	if _, restores := wanted[labels.Marker]; !restores {
		return a.open(read, wanted)
	}
	wanted = a.mutantLabels(wanted)
	if !a.world.restore(a.mutantRead(read, wanted), wanted, a.read, a.isOvertaken()) {
		return nil, nodes.ErrStale
	}
	a.tell("  restores %s@%s: %v", read.UID, a.world.node.ResourceVersion, wanted)
	a.broken.restored = a.world.node
	n := a.world.node
	if _, isRead := identity.Noted(read); isRead {
		n = a.world.whole(n)
	}
	if a.isLost() {
		return nil, errLost
	}
	return n, nil
}

// recordsOf is a processor's door to the records.
type recordsOf struct{ *processorActor }

// Cached implements [apply.Records].
func (a recordsOf) Cached(context.Context, string) (records.Stored, error) {
	return a.record.stored(), nil
}

// Get implements [apply.Records].
func (a recordsOf) Get(context.Context, string) (records.Stored, error) {
	if early, ok := a.mutantRecord(); ok {
		return early.stored(), nil
	}
	a.pause()
	a.removals, a.read = a.world.removals, len(a.world.records)-1
	return a.world.record.stored(), nil
}

// Write implements [apply.Records].
func (a recordsOf) Write(_ context.Context, read records.Stored, next record.Record) (records.Stored, error) {
	a.pause()
	if a.mutant.notesNothing && a.broken.restored != nil {
		return read, nil
	}
	next = a.mutantNote(read, next)
	if a.mutant.savesBlindly {
		read = a.world.record.stored()
	}
	a.world.ghost.ending = a.ending
	if !a.world.writeRecord(read.Object, next) {
		return records.Stored{}, records.ErrStale
	}
	a.broken.restored, a.broken.saved = nil, true
	a.removals, a.read = a.world.removals, len(a.world.records)-1
	written := a.world.record
	a.tell("  stores %v version %s source %s restored %v", next.Labels, next.Revision, next.Source, next.Restored)
	if a.isLost() {
		return records.Stored{}, errLost
	}
	return written.stored(), nil
}

// protect gives the Node in the cache the finalizer, or lets one go that waits for it. False: there is nothing to do.
func (a *processorActor) protect() bool {
	n := a.node
	switch {
	case len(a.late) > 0:
		a.tell("saw the end of %s, which was edited late", a.late[0].UID)
		if _, err := a.apply(a.late[:1:1]); err == nil {
			a.late = a.late[1:]
		}
		return true
	case n != nil && n.DeletionTimestamp == nil && !isProtected(n):
		a.pause()
		if a.world.isNode(n.UID, n.ResourceVersion) && a.world.setFinalizer(true) {
			a.tell("protects %s", nodeText(a.world.node))
		}
		return true
	case waitsForFinalizer(n):
		a.letGo()
		return a.world.node != nil // the cache may be behind: then there is other work
	}
	return false
}

// letGo stores the last labels of a Node that waits for it, and takes the finalizer away.
func (a *processorActor) letGo() {
	for range maxConflicts {
		a.pause()
		n := a.world.node
		if a.mutant.letsGoCached {
			n = a.node
		}
		if !waitsForFinalizer(n) {
			return
		}
		a.tell("lets %s go", nodeText(n))
		if !a.mutant.letsGoFirst && !a.saveEnd(n) {
			return
		}
		a.pause()
		if a.world.node == nil || !a.mayLetGo(n) {
			a.tell("  conflict")
			continue
		}
		isEditedLate := a.choices.happens(a.settings.lateEdit)
		if isEditedLate { // between the API server's check and its delete
			a.world.editLate()
			a.tell("  %s is edited in this moment: %v", nodeText(a.world.node), a.world.node.Labels)
		}
		a.world.setFinalizer(false)
		a.world.ghost.released(a.world, isEditedLate, a.isOvertaken())
		a.tell("  and takes the finalizer of %s away", nodeText(n))
		if a.mutant.letsGoFirst {
			a.saveEnd(n)
		}
		return
	}
}

// saveEnd stores the labels of a Node that ends.
func (a *processorActor) saveEnd(n *metav1.PartialObjectMetadata) bool {
	end, r := txn.EndSeen(n), a.knownRecord(n)
	var waiting []txn.Transaction
	queue := a.queue
	if !preserve.NotesEnding(end, r) && !a.mutant.overtakesQueue {
		a.pause()
		a.ending = a.world.ghost.endingOf(end.UID)
		queue = a.world.queue
	}
	for _, t := range queue {
		if !a.leavesOut(t.Transaction, end, r) {
			waiting = append(waiting, t.Transaction)
		}
	}
	a.tell("  of the queue, %d count", len(waiting))
	_, err := a.apply(preserve.Ending(end, r, waiting))
	a.ending = ending{}
	return err == nil
}

// leavesOut says whether a mutant takes no account of a transaction when it saves an end.
func (a *processorActor) leavesOut(t, end txn.Transaction, r *record.Record) bool {
	switch {
	case a.mutant.overtakesQueue:
		return true
	case t.UID == end.UID:
		return a.mutant.ignoresOwn
	}
	return a.mutant.trustsMarkers && r != nil && preserve.Owned(*r, end.UID, end.Marker)
}

// knownRecord returns the record in the cache, nil if there is none. To a mutant any record is one
// of the Node.
func (a *processorActor) knownRecord(n *metav1.PartialObjectMetadata) *record.Record {
	if a.record == nil {
		return nil
	}
	if a.mutant.trustsRecords && a.record.hasLabels() {
		return &record.Record{Source: n.UID}
	}
	return &a.record.Record
}

// mayLetGo says whether the Node is the one whose labels were stored.
func (a *processorActor) mayLetGo(n *metav1.PartialObjectMetadata) bool {
	if a.mutant.letsGoBlindly {
		return isProtected(a.world.node)
	}
	return a.world.isNode(n.UID, n.ResourceVersion)
}
