package simulation

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

// watcherActor is a watcher: what it has seen, and what it has not stored.
type watcherActor struct {
	actor
	observer watcher.Observer
	isSteady bool // misses nothing
	other    *watcherActor

	// What it has seen of what is stored, which is behind. Nothing is concluded from what these do not have.
	queue  []*storedTxn
	record *storedRecord

	position  int // of the next event
	last      *metav1.PartialObjectMetadata
	pending   []txn.Transaction
	isStarted bool  // the nodes were compared with their records
	ended     []int // the incarnations whose end it has seen, or concluded

	// isTrusted says that the head start that the watcher gives others is over. Until it lists anew, others give one to it.
	isTrusted  bool
	listedAt   int // the position when the nodes were last listed
	storedUpTo int // the position up to which everything is stored
}

// reset makes the watcher ready for another run.
func (a *watcherActor) reset(isSteady bool) {
	a.isSteady, a.observer.RecordUpdates = isSteady, a.settings.recordUpdates
	a.down()
}

// down forgets all that a process has in its memory.
func (a *watcherActor) down() {
	a.pending, a.last, a.isStarted, a.isTrusted = a.pending[:0], nil, false, false
	a.position, a.listedAt, a.storedUpTo = 0, 0, 0
	a.ended = a.ended[:0]
	a.queue, a.record = nil, nil
}

// run is one life of a watcher.
func (a *watcherActor) run() {
	var early *storedRecord
	if a.mutant.recordsFirst {
		early = a.world.record
		a.pause()
	}
	listed := a.world.node
	a.list()
	for !a.mayStore() {
		a.pause()
	}
	a.pause()
	isQueued := len(a.world.queue) > 0 && !a.mutant.ignoresQueue
	a.pause()
	if listed != nil {
		r := a.world.record
		if a.mutant.recordsFirst {
			r = early
		}
		a.pending = append(a.pending, a.catchUp(listed, r.get(), isQueued)...)
		a.tell("starts, sees %s, is to record %d", nodeText(listed), len(a.pending))
	}
	a.isStarted = true
	for {
		a.pause()
		if len(a.pending) == 0 {
			a.storedUpTo = a.position
		}
		if len(a.pending) > 0 && a.mayStore() && (a.position == len(a.world.events) || a.choices.happens(a.settings.eager)) {
			a.write()
			continue
		}
		a.receive()
	}
}

// list takes what there is as seen.
func (a *watcherActor) list() {
	a.position, a.last = len(a.world.events), a.world.node
	a.listedAt = a.position
	a.isTrusted = false
}

// mayStore says whether the head start is over: by then who was watching all the time has stored what there was before the
// list. That is the one assumption about time.
func (a *watcherActor) mayStore() bool {
	isLate := a.settings.variant == steady && a.other.isSteady && a.other.storedUpTo < a.listedAt ||
		0 < a.world.lateEdit && a.world.lateEdit <= a.listedAt && !a.isSettled()
	a.isTrusted = a.isTrusted || !isLate || a.mutant.noHeadStart
	return a.isTrusted
}

// isDone says whether everything is stored.
func (a *watcherActor) isDone() bool {
	return a.isStarted && len(a.pending) == 0 && a.position == len(a.world.events)
}

// receive takes the next event, or sees after a gap what is there now.
func (a *watcherActor) receive() {
	w := a.world
	if a.position == len(w.events) {
		return
	}
	if !a.isSteady && a.choices.happens(a.settings.gap) {
		a.tell("lists anew after a gap")
		before := a.last
		a.list()
		a.see(before, a.last, true) // what is not there any more leaves a tombstone: the last state that was seen
		return
	}
	e := w.events[a.position]
	a.position++
	if e.isDelete {
		a.last = nil
		a.see(e.node, nil, false)
		return
	}
	before := a.last
	a.last = e.node
	a.see(before, e.node, false)
}

// see puts what the real watcher makes of an event behind what is pending.
func (a *watcherActor) see(before, after *metav1.PartialObjectMetadata, isRelist bool) {
	transactions := a.observer.Observe(before, after, time.Time{})
	if a.mutant.observe != nil {
		transactions = a.mutant.observe(before, after, isRelist, transactions)
	}
	a.pending = append(a.pending, transactions...)
	if before != nil && (after == nil || after.UID != before.UID) {
		a.ended = append(a.ended, incarnationOf(before.UID))
	}
}

// catchUp is what the real watcher makes of a node that is there when it starts.
func (a *watcherActor) catchUp(listed *metav1.PartialObjectMetadata, r *record.Record, isQueued bool) []txn.Transaction {
	transactions := a.observer.CatchUp(listed, r, isQueued, time.Time{})
	if a.mutant.catchUp != nil {
		transactions = a.mutant.catchUp(a, listed, r, transactions)
	}
	return transactions
}

// write stores the oldest pending transaction, unless it is known to be stored, or left to the other watcher for a while.
func (a *watcherActor) write() {
	t := a.pending[0]
	a.refresh()
	switch {
	case a.settings.knows && a.isKnown(t):
		a.checkKnown(t)
		a.tell("leaves %s %s@%s out", t.Type, t.UID, t.ResourceVersion)
		a.next()
	case a.choices.happens(a.settings.leaves):
		if a.mutant.leavesForGood {
			a.next()
		}
	default:
		a.store(t)
	}
}

// refresh brings the caches up to date.
func (a *watcherActor) refresh() {
	if !a.settings.knows {
		return
	}
	if !a.choices.happens(a.settings.behind) {
		a.record = a.world.record
	}
	if !a.choices.happens(a.settings.behind) {
		a.queue = a.world.queue
	}
}

// isKnown says whether the caches show that a transaction is stored, or has had its effect.
func (a *watcherActor) isKnown(t txn.Transaction) bool {
	r := a.record.get()
	isSame := func(queued *storedTxn) bool {
		return queued.ResourceVersion == t.ResourceVersion && queued.Type == t.Type && queued.UID == t.UID
	}
	return r != nil && preserve.Applied(t, *r) || slices.ContainsFunc(a.queue, isSame) ||
		a.mutant.knows != nil && a.mutant.knows(t, r, a.queue)
}

// checkKnown: what is left out is in the queue, or by the rules of the decision has no effect any more.
func (a *watcherActor) checkKnown(t txn.Transaction) {
	at, isQueued := a.world.find(t)
	isQueued = isQueued && a.world.queue[at].Type == t.Type && a.world.queue[at].UID == t.UID
	if !isQueued && preserve.Decide(t, a.world.record.get(), a.world.liveNode(), policy).Action != preserve.Nothing {
		a.world.breaks(errBrokeP1, "%s %s@%s is left out, and its effect is not stored", t.Type, t.UID, t.ResourceVersion)
		return
	}
	a.world.ghost.puts(t)
}

// store puts a transaction, the oldest pending one, as txn.Queue.Put does.
func (a *watcherActor) store(t txn.Transaction) {
	if other := a.world.put(t); other == nil {
		a.tell("records %s %s@%s %v marker %q", t.Type, t.UID, t.ResourceVersion, t.Labels, t.Marker)
		if a.choices.happens(a.settings.lostPut) {
			a.tell("  and the answer is lost")
			return
		}
	} else {
		a.pause()
		at, ok := a.world.find(t)
		if !a.mutant.trustsNames && (!ok || a.world.queue[at].Type != t.Type || a.world.queue[at].UID != t.UID) {
			return // it is stored when the name is free
		}
	}
	a.next()
}

// next takes the oldest pending transaction away.
func (a *watcherActor) next() { a.pending = a.pending[:copy(a.pending, a.pending[1:])] }
