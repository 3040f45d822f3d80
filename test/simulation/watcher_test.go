package simulation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			a.store()
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

// store puts the oldest pending transaction, as txn.Queue.Put does.
func (a *watcherActor) store() {
	t := a.pending[0]
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
	a.pending = a.pending[:copy(a.pending, a.pending[1:])]
}
