package simulation

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// maxConflicts bounds the conflicts of the protection of a node that are retried at once.
const maxConflicts = 10

// processorActor is a processor without locks: the real [apply.Applier], with the API server of the
// simulation.
type processorActor struct {
	actor

	applier *apply.Applier

	// Each cache has its own watch. They may lag behind each other, and behind the API server.
	queue    []*storedTxn
	record   *storedRecord
	node     *nodeview.Node
	position int // the index of the next event of the Node
	start    int // that when it started

	edits    preserve.Edits
	isEdited bool              // the Node was edited while it was being deleted
	late     []txn.Transaction // the ends of these Nodes that are not stored yet

	done   []int // removed, but possibly still in the cache
	isIdle bool

	read            int // the index of the record that was last read
	removals, began int // the number of removals of the record when it was read, and when the batch began

	ending ending // set while it saves the end of a Node

	listed   map[int]bool // the transactions in its first list of the queue
	listedAt int          // the revision then

	broken breaks // the state of mutants that change calls of the API server
}

// down clears the memory of the process.
func (a *processorActor) down() {
	a.done, a.late, a.isIdle, a.removals = a.done[:0], a.late[:0], false, 0
	a.edits = preserve.Edits{}
	a.position, a.start, a.read = 0, 0, 0
	a.ending = ending{}
	a.broken = breaks{}
}

// run is one life of a processor.
func (a *processorActor) run() {
	a.applier = &apply.Applier{Nodes: a, Records: recordsOf{a}, Policy: policy, Observer: a, Plan: a.mutantPlan()}
	a.queue, a.record, a.node = a.mutantQueue(a.world.queue), a.world.record, a.world.node
	a.list()
	a.position, a.start = len(a.world.events), len(a.world.events)
	a.isEdited = a.node != nil && a.node.IsDeleting()
	for {
		a.pause()
		a.refresh()
		a.isIdle = false // unless proven below, after turns of other actors, it is not idle
		if len(a.world.malformed) > 0 && !a.choices.happens(a.settings.stale) {
			a.quarantine()
		}
		if a.settings.variant == protected && a.protect() {
			continue
		}
		if batch := a.batch(); len(batch) > 0 {
			a.drain(batch)
		} else {
			a.isIdle = !a.recheck()
		}
	}
}

// refresh updates the caches.
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

// watch processes new events of the Node.
func (a *processorActor) watch() {
	for _, e := range a.world.events[a.position:] {
		a.position++
		before := a.node
		switch isKnown := before != nil && before.UID == e.node.UID; {
		case !e.isDelete:
			isChanged := !isKnown || !maps.Equal(everything(before), everything(e.node))
			a.isEdited = a.isEdited && isKnown || e.node.IsDeleting() && isChanged
			if isKnown {
				a.edits.Observe(before, e.node, nil)
			}
			a.node = e.node
			continue
		case isKnown && a.settings.variant == protected && !a.mutant.ignoresLateEdits:
			ends := []txn.Transaction{txn.EndSeen(e.node, true)}
			a.edits.Observe(e.node, nil, ends)
			if end := ends[0]; a.isEdited || end.Edited != "" && !preserve.NotesEnding(end, a.record.get()) {
				a.late = append(a.late, end)
			}
		}
		a.node, a.isEdited = nil, false
	}
}

// batch returns the cached transactions that are not applied, oldest first.
func (a *processorActor) batch() []*storedTxn {
	var batch []*storedTxn
	for _, t := range a.earlierFirst(a.queue, a.isEarlier) {
		if !slices.Contains(a.done, t.uid) {
			batch = append(batch, t)
		}
	}
	if a.mutant.newestFirst && len(batch) > 0 {
		batch = batch[len(batch)-1:]
	}
	return batch
}

// drain applies transactions and removes the settled ones. It stops at an error, to retry later.
func (a *processorActor) drain(batch []*storedTxn) {
	transactions := make([]txn.Transaction, len(batch))
	for i, t := range batch {
		transactions[i] = t.Transaction
		a.log("takes %s %s@%s", t.Type, t.UID, t.Revision)
		if a.mutant.removesFirst {
			a.remove(t)
		}
	}
	if !a.mutant.skipsQueuedEdits {
		transactions = preserve.WithQueuedEdits(transactions)
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

// apply calls the real Applier.
func (a *processorActor) apply(transactions []txn.Transaction) (settled int, err error) {
	a.broken = breaks{transactions: transactions}
	defer func() { a.broken.seeks = false }()
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
	a.log("removes %s %s@%s", t.Type, t.UID, t.Revision)
	return !a.isLost()
}

// checkRemoval checks that a transaction leaves the queue only after its effect is stored: the same
// rules must not find any further effect.
func (a *processorActor) checkRemoval(t *storedTxn) {
	if at, ok := a.world.find(t.Transaction); !ok || a.world.queue[at].uid != t.uid || a.began < a.world.removals {
		return // another processor has removed it, or the record was removed after the decision
	}
	r, d := a.world.due(t.Transaction, a.decision)
	if hasEffect(t.Transaction, r, d) && !a.world.isOpenedByAnother(t.Transaction, d) {
		a.world.breaks(errBrokeP1, "%s %s@%s is removed, and its effect is not stored", t.Type, t.UID, t.Revision)
	}
}

// isOvertaken reports whether the record was removed after the decision that is being executed.
func (a *processorActor) isOvertaken() bool { return a.removals < a.world.removals }

// isLost reports whether the answer to a successful write is lost.
func (a *processorActor) isLost() bool {
	if !a.choices.happens(a.settings.lostWrite) {
		return false
	}
	a.log("  and the answer is lost")
	return true
}

var (
	_ apply.Nodes    = (*processorActor)(nil)
	_ apply.Records  = (*recordsOf)(nil)
	_ apply.Observer = (*processorActor)(nil)
)

// Applied implements [apply.Observer].
func (a *processorActor) Applied(_ context.Context, t txn.Transaction, d preserve.Decision, _ *nodeview.Node) {
	a.log("  %s %s@%s: %s, %s", t.Type, t.UID, t.Revision, d.Action, d.Reason)
}

// Withheld implements [apply.Observer].
func (a *processorActor) Withheld(_ context.Context, t txn.Transaction, held preserve.Held) {
	a.log("  withholds %v from %s: %s", held.Keys, t.UID, held.Why)
}

// Refused implements [apply.Observer].
func (a *processorActor) Refused(_ context.Context, t txn.Transaction, keys labels.Keys, _ error) {
	a.log("  sets %v aside, refused on %s", keys, t.UID)
	a.broken.seeks = false
	a.broken.aside++
}

// Renewed implements [apply.Observer].
func (a *processorActor) Renewed(_ context.Context, t txn.Transaction) {
	a.log("  %s %s@%s: renewed the record", t.Type, t.UID, t.Revision)
}

// Conflicted implements [apply.Observer].
func (a *processorActor) Conflicted(error) {
	a.log("  conflict")
	a.broken.conflicted = true
}

// TooLarge implements [apply.Observer].
func (a *processorActor) TooLarge(context.Context, txn.Transaction, error) {}

// Get implements [apply.Nodes].
func (a *processorActor) Get(context.Context, string) (*nodeview.Node, error) {
	a.broken.before = a.world.record
	a.pause()
	n := a.world.node
	if n == nil {
		a.log("  reads the Node: there is none")
		return nil, nil
	}
	a.log("  reads the Node: %s, identity %q", nodeText(n), a.world.reported().SystemUUID)
	return a.world.whole(n), nil
}

// Now implements [apply.Nodes].
func (a *processorActor) Now(context.Context) (revision.Revision, error) {
	if a.settings.replaces > 0 { // otherwise nothing is ahead
		a.pause()
	}
	return rev(a.world.rv), nil
}

// Relabel implements [apply.Nodes].
func (a *processorActor) Relabel(_ context.Context, read *nodeview.Node, to nodes.Wanted, _ time.Time) (*nodeview.Node, error) {
	wanted := withMarker(to.Labels, to.Marker)
	a.pause()
	a.asks(read, wanted)
	if a.broken.aside > 0 {
		a.checkTries(a.broken.aside)
	}
	if err := a.refusalOf(a.mutantRead(read, wanted), wanted); err != nil {
		a.broken.seeks, a.broken.tries, a.broken.aside, a.broken.changed = true, 0, 0, len(labels.Differing(read.Labels, to.Labels))
		a.log("  is refused: %v", err)
		return nil, err
	}
	a.broken.seeks, a.broken.aside = false, 0
	if to.Marker == "" && read.Gated && maps.Equal(read.Labels, to.Labels) { // a mutant restores labels without the marker
		return a.open(a.mutantRead(read, wanted), wanted)
	}
	a.world.ghost.applied = a.broken.transactions
	if !a.world.restore(a.mutantRead(read, wanted), wanted, a.read, a.isOvertaken()) {
		return nil, nodes.ErrStale
	}
	a.log("  restores %s@%s: %v", read.UID, a.world.node.Revision, wanted)
	a.broken.restored, a.broken.relabelled = a.world.node, true
	n := a.world.whole(a.world.node)
	if a.isLost() {
		return nil, errLost
	}
	return n, nil
}

// NotGivenBack implements [apply.Observer].
func (a *processorActor) NotGivenBack(context.Context, txn.Transaction, error) {}

// TryRelabel implements [apply.Nodes].
func (a *processorActor) TryRelabel(_ context.Context, read *nodeview.Node, to nodes.Wanted, _ time.Time) error {
	wanted := withMarker(to.Labels, to.Marker)
	a.pause()
	a.asks(read, wanted)
	a.broken.tries++
	a.checkTries(a.broken.changed)
	if !a.world.takes(read, wanted) {
		return nodes.ErrStale
	}
	err := a.world.refusal(read, wanted)
	switch {
	case a.mutant.triesAll:
		err = errRefusedAnyway
	case a.mutant.blamesFirst && a.broken.tries > 1:
		err = errRefusedAnyway
	case a.mutant.trustsAnswers && a.broken.tries == 1:
		err = nil
	}
	a.log("  tries %v: %v", wanted, err)
	return err
}

// refusalOf returns the answer of the admission policy to a patch, or nil. The API server checks its
// conditions first.
func (a *processorActor) refusalOf(read *nodeview.Node, wanted map[string]string) error {
	if !a.world.takes(read, wanted) {
		return nil
	}
	return a.world.refusal(read, wanted)
}

// recordsOf implements [apply.Records] for a processor.
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
	if a.mutant.write != nil && read.Record != nil {
		next = a.mutant.write(*read.Record, next)
	}
	if a.mutant.savesBlindly {
		read = a.world.record.stored()
	}
	a.world.ghost.ending, a.world.ghost.heard = a.ending, a.world.events[a.start:a.position]
	if !a.world.writeRecord(read.Object, next) {
		return records.Stored{}, records.ErrStale
	}
	a.broken.restored, a.broken.saved = nil, true
	a.removals, a.read = a.world.removals, len(a.world.records)-1
	written := a.world.record
	a.log("  stores %v version %s source %s restored %v", next.Labels, next.Revision, next.Source, next.Restored)
	if a.isLost() {
		return records.Stored{}, errLost
	}
	return written.stored(), nil
}

// protect adds the finalizer to the cached Node, or releases a Node that waits for that. It returns
// false if there is nothing to do.
func (a *processorActor) protect() bool {
	n := a.node
	switch {
	case len(a.late) > 0:
		a.log("saw the end of %s, which was edited late", a.late[0].UID)
		if a.saveEnd(a.late[0]) {
			a.late = a.late[1:]
		}
		return true
	case n != nil && !n.IsDeleting() && !isProtected(n):
		a.pause()
		if a.world.isNode(n.UID, n.Revision) && a.world.setFinalizer(true) {
			a.log("protects %s", nodeText(a.world.node))
		}
		return true
	case waitsForFinalizer(n):
		a.letGo()
		return a.world.node != nil // a stale cache means that there is other work
	}
	return false
}

// letGo stores the last labels of a Node that waits for it, and removes the finalizer.
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
		a.log("lets %s go", nodeText(n))
		if !a.mutant.letsGoFirst && !a.saveEnd(txn.EndSeen(n, false)) {
			return
		}
		a.pause()
		if a.world.node == nil || !a.mayLetGo(n) {
			a.log("  conflict")
			continue
		}
		isEditedLate := a.choices.happens(a.settings.lateEdit)
		if isEditedLate { // after the API server has checked the precondition, and before it deletes the Node
			a.world.editLate()
			a.log("  %s is edited in this moment: %v", nodeText(a.world.node), a.world.node.Labels)
		}
		a.world.setFinalizer(false)
		a.world.ghost.released(a.world, isEditedLate, a.isOvertaken())
		a.log("  and takes the finalizer of %s away", nodeText(n))
		if a.mutant.letsGoFirst {
			a.saveEnd(txn.EndSeen(n, false))
		}
		return
	}
}

// saveEnd stores the labels of a Node that ends.
func (a *processorActor) saveEnd(end txn.Transaction) bool {
	r := a.knownRecord(end.UID)
	var waiting []txn.Transaction
	queue := a.queue
	if !preserve.NotesEnding(end, r) && !a.mutant.overtakesQueue {
		a.pause()
		a.ending = a.world.ghost.endingOf(a.world, end.UID)
		queue = a.world.queue
	}
	queue = a.earlierFirst(queue, func(t *storedTxn) bool { return t.Revision.After(rev(a.world.rv)) })
	for _, t := range queue {
		if !a.leavesOut(t.Transaction, end, r) {
			waiting = append(waiting, t.Transaction)
		}
	}
	a.log("  of the queue, %d count", len(waiting))
	transactions := preserve.Ending(end, r, waiting)
	if a.mutant.mergesAll {
		mergeAll(&transactions[len(transactions)-1])
	}
	_, err := a.apply(transactions)
	a.ending = ending{}
	return err == nil
}

// mergeAll merges all transactions that an end supersedes into one state, whichever of them the
// record includes.
func mergeAll(end *txn.Transaction) {
	own := append(slices.Clone(end.Superseded), *end)
	own[len(own)-1].Superseded = nil
	*end = own[0]
	for _, t := range own[1:] {
		*end = preserve.Merged(*end, t)
	}
}

// leavesOut reports whether a mutant ignores a transaction when it saves an end.
func (a *processorActor) leavesOut(t, end txn.Transaction, r *record.Record) bool {
	switch {
	case a.mutant.overtakesQueue:
		return true
	case t.UID == end.UID:
		return a.mutant.ignoresOwn
	}
	return a.mutant.trustsMarkers && r != nil && preserve.Owned(*r, end.UID, end.Marker)
}

// knownRecord returns the cached record, or nil if there is none. A mutant assumes that any record
// belongs to the Node.
func (a *processorActor) knownRecord(uid types.UID) *record.Record {
	if a.record == nil {
		return nil
	}
	if a.mutant.trustsRecords && a.record.hasLabels() {
		return &record.Record{Source: uid}
	}
	return &a.record.Record
}

// mayLetGo reports whether the Node is the one whose labels were stored.
func (a *processorActor) mayLetGo(n *nodeview.Node) bool {
	if a.mutant.letsGoBlindly {
		return isProtected(a.world.node)
	}
	return a.world.isNode(n.UID, n.Revision)
}
