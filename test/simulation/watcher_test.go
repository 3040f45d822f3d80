package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
	"nodekeeper.dev/internal/watcher/barrier"
)

// watcherActor is a watcher: what it has observed, and what it has not stored yet. It uses the real
// outbox.
type watcherActor struct {
	actor
	observer watcher.Observer
	edits    preserve.Edits
	outbox   *watcher.Outbox

	// Caches of stored objects, which may be stale. The absence of an object in them proves nothing.
	queue  []*storedTxn
	record *storedRecord

	member   *member
	early    []*member // used by a mutant: the other members just before the latest list
	lists    []*list
	position int // the index of the next event
	reached  int // the resourceVersion up to which every event was observed, or precedes the list
	digest   barrier.Digest
	last     *nodeview.Node
	doubtful *nodeview.Node // the listed Node, if it must be compared with its record
	started  bool           // the nodes have been compared with their records
	ended    []int          // the incarnations whose end it has seen or inferred
	inFlight *txn.Transaction
	busy     bool // a request is under way: only events are processed meanwhile
	cutOff   bool // its watch has ended, and the following list is not answered yet
}

var (
	errTaken = errors.New("the name is taken")
	errLost  = errors.New("the answer is lost")
)

// The interfaces that the outbox uses.
var (
	_ watcher.StoredEvents = (*watcherActor)(nil)
	_ watcher.Store        = (*watcherActor)(nil)
	_ watcher.Turn         = (*watcherActor)(nil)
)

// reset prepares the watcher for another run.
func (a *watcherActor) reset() {
	a.observer.RecordUpdates = a.settings.recordUpdates
	a.down()
}

// down clears the memory of the process.
func (a *watcherActor) down() {
	if a.outbox == nil || a.outbox.Len(nodeName) > 0 {
		a.outbox = &watcher.Outbox{Stored: a, Store: a, Turn: a}
	}
	a.doubtful, a.edits = nil, preserve.Edits{}
	a.last, a.started, a.busy, a.cutOff, a.inFlight = nil, false, false, false, nil
	a.position, a.reached, a.digest = 0, 0, 0
	if a.member != nil {
		a.member.dead = true
	}
	for _, other := range a.watchers {
		for _, l := range other.lists { // what it had seen is gone
			l.silent = slices.DeleteFunc(l.silent, func(w *watcherActor) bool { return w == a })
		}
	}
	a.member, a.lists = nil, a.lists[:0]
	a.ended = a.ended[:0]
	a.queue, a.record = nil, nil
}

// run is one life of a watcher.
func (a *watcherActor) run() {
	a.member = a.world.join()
	a.readMembersEarly()
	a.pause()
	var early *storedRecord
	if a.mutant.recordsFirst {
		early = a.world.record
	}
	listed := a.list()
	a.log("lists %s", nodeText(listed))
	for !a.lists[0].alike && !a.mutant.noBarrier {
		a.pause()
		a.converse()
		a.receive()
	}
	a.pause()
	a.start(listed, early)
	for {
		a.pause()
		a.converse()
		if a.doubtful != nil && a.lists[len(a.lists)-1].alike {
			a.compare()
		}
		if a.outbox.Len(nodeName) > 0 && (a.position == len(a.world.events) || a.choices.happens(a.settings.eager)) && a.flush() {
			continue
		}
		a.receive()
	}
}

// start compares the listed nodes with their records.
func (a *watcherActor) start(listed *nodeview.Node, early *storedRecord) {
	queued := len(a.world.queue) > 0 && !a.mutant.ignoresQueue
	a.pause()
	if listed != nil {
		r := a.world.record
		if a.mutant.recordsFirst {
			r = early
		}
		found := a.catchUp(listed, r.get(), queued)
		for _, t := range slices.Backward(found) {
			a.outbox.AddFirst(watcher.Event{Transaction: t, List: 0})
		}
		a.log("starts, saw %s, must record %d", nodeText(listed), len(found))
	}
	a.started = true
}

// compare compares a node with its record after a gap.
func (a *watcherActor) compare() {
	n, list := a.doubtful, len(a.lists)-1
	a.pause()
	queued := len(a.world.queue) > 0
	a.pause()
	if a.doubtful != n {
		return
	}
	a.doubtful = nil
	for _, t := range a.observer.CatchUp(n, a.world.record.get(), queued, time.Time{}) {
		a.outbox.Add(watcher.Event{Transaction: t, List: list})
	}
	a.log("compares %s with its record", nodeText(n))
}

// flush stores what can be stored. It returns false if the watcher only waits.
func (a *watcherActor) flush() bool {
	a.refresh()
	_, err := a.outbox.Flush(context.Background(), nodeName)
	return !errors.Is(err, watcher.ErrHeld)
}

// isDone reports whether everything is stored.
func (a *watcherActor) isDone() bool {
	return a.started && a.doubtful == nil && a.outbox.Len(nodeName) == 0 && a.position == len(a.world.events) && a.lists[len(a.lists)-1].passed
}

// isComplete reports whether the watcher does not depend on another one: everything that it has not
// seen itself is stored.
func (a *watcherActor) isComplete() bool {
	return a.started && !a.cutOff && a.doubtful == nil && !a.member.silent && a.lists[len(a.lists)-1].passed
}

// receive processes the next event, or the current state after a gap.
func (a *watcherActor) receive() {
	w := a.world
	if a.member.silent {
		if !a.busy {
			a.wake()
		}
		return
	}
	if a.position == len(w.events) {
		if a.reached < w.rv && !a.choices.happens(a.settings.noBookmark) {
			a.reached = w.rv // a bookmark
		}
		return
	}
	if !a.busy && a.choices.happens(a.settings.gap) && a.mayMiss(a) {
		a.log("relists after a gap")
		a.relist()
		return
	}
	e := w.events[a.position]
	a.position++
	a.reached = e.rv
	if e.isDelete {
		a.observe(e.node, nil, false)
		return
	}
	a.observe(a.last, e.node, false)
}

// relist processes the current state. If a Node is gone, its last observed state becomes a
// tombstone.
func (a *watcherActor) relist() {
	a.cutOff = true
	before := a.last
	a.readMembersEarly()
	after := a.list()
	a.last = before
	a.observe(before, after, true)
}

// wake is called after a silence for which the others may not have waited. Its watch goes on, so
// it has missed nothing.
func (a *watcherActor) wake() {
	a.log("wakes up")
	switch {
	case a.mutant.staysAway:
		a.member.silent = false
	case a.mutant.listsAgain:
		a.member = a.world.join()
		a.relist()
	default:
		a.member = a.world.join()
	}
}

// observe adds the transactions that the real watcher makes from an event to the outbox.
func (a *watcherActor) observe(before, after *nodeview.Node, relisted bool) {
	observe := a.observer.Observe
	if relisted && !a.mutant.trustsGates {
		observe = a.observer.ObserveAfterGap
	}
	transactions := observe(before, after, time.Time{})
	if relisted && !a.mutant.trustsTombstones {
		a.edits.ObserveAfterGap(before, transactions)
	} else {
		a.edits.Observe(before, after, transactions)
	}
	if a.mutant.observe != nil {
		transactions = a.mutant.observe(before, after, relisted, transactions)
	}
	for _, t := range transactions {
		a.outbox.Add(watcher.Event{Transaction: t, List: len(a.lists) - 1, Observed: !relisted})
		a.doubtful = nil // the event has the same effect
	}
	if relisted && (a.doubtful != nil || a.observer.NeedsCheck(before, after)) && !a.mutant.trustsLabels {
		a.doubtful = after
	}
	if a.last != nil {
		a.digest = a.digest.Remove(nodeName, a.last.UID)
	}
	if a.last = after; after != nil {
		a.digest = a.digest.Add(nodeName, after.UID)
	}
	if before != nil && (after == nil || after.UID != before.UID) {
		a.ended = append(a.ended, incarnationOf(before.UID))
	}
}

// catchUp returns the transactions that the real watcher makes for a node that exists when it
// starts.
func (a *watcherActor) catchUp(listed *nodeview.Node, r *record.Record, queued bool) []txn.Transaction {
	transactions := a.observer.CatchUp(listed, r, queued, time.Time{})
	if a.mutant.catchUp != nil {
		transactions = a.mutant.catchUp(a, listed, r, transactions)
	}
	return transactions
}

// Passed reports whether the barrier of an event has passed.
func (a *watcherActor) Passed(e watcher.Event) bool {
	l := a.lists[e.List]
	switch {
	case a.mutant.noBarrier:
		return true
	case a.mutant.replacesBarrier && e.List < len(a.lists)-1:
		return true
	case e.Observed && a.mutant.holdsConclusions:
		return true
	case e.Observed && !a.mutant.trustsDigests:
		return l.passed
	}
	return l.alike
}

// Wait leaves an event to another watcher for a while.
func (a *watcherActor) Wait(watcher.Event, int) time.Duration {
	if a.choices.happens(a.settings.leaves) {
		return time.Second
	}
	return 0
}

// refresh updates the caches.
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

// Has reports whether a transaction is stored, or has had its effect, according to the caches.
func (a *watcherActor) Has(_ context.Context, t txn.Transaction) bool {
	if a.mutant.leavesForGood && a.choices.happens(a.settings.leaves) {
		return true
	}
	if r := a.record.get(); a.mutant.leavesAdmitted && t.Type == txn.Added && r != nil && isRestoredBy(t, *r) {
		a.log("leaves %s %s@%s unrecorded", t.Type, t.UID, t.Revision)
		return true
	}
	if !a.settings.knows {
		return false
	}
	if a.isApplied(t) {
		a.checkKnown(t)
	} else if queued := a.cached(t); queued != nil {
		a.checkKnown(queued.Transaction) // its watcher may have seen less of what users did before
	} else {
		return false
	}
	a.log("leaves %s %s@%s out", t.Type, t.UID, t.Revision)
	return true
}

// isApplied reports whether the cached record proves that a transaction has had its effect.
func (a *watcherActor) isApplied(t txn.Transaction) bool {
	r := a.record.get()
	isAhead := a.settings.replaces > 0 && preserve.Ahead(r, rev(a.reached)) && !a.mutant.believesAhead
	return r != nil && preserve.Applied(t, *r, policy.MachineBound) && !isAhead || a.mutant.knows != nil && a.mutant.knows(t, r, a.queue)
}

// cached returns the transaction of the same event in the cached queue, nil for none.
func (a *watcherActor) cached(t txn.Transaction) *storedTxn {
	for _, queued := range a.queue {
		if queued.Revision == t.Revision && queued.IsSameEvent(t) {
			return queued
		}
	}
	return nil
}

// checkKnown checks that a skipped transaction is in the queue, or has no effect any more by the
// rules of the decision.
func (a *watcherActor) checkKnown(t txn.Transaction) {
	at, isQueued := a.world.find(t)
	isQueued = isQueued && a.world.queue[at].IsSameEvent(t)
	r, d := a.world.due(t, func(t txn.Transaction, r *record.Record, n *nodeview.Node) preserve.Decision {
		return preserve.Decide(t, r, n, policy)
	})
	if !isQueued && hasEffect(t, r, d) && !a.world.isOpenedByAnother(t, d) {
		a.world.breaks(errBrokeP1, "%s %s@%s is left out, and its effect is not stored", t.Type, t.UID, t.Revision)
		return
	}
	a.world.ghost.puts(t)
}

// Put stores a transaction, as queue.Queue.Put does. Events are processed while the request is
// under way.
func (a *watcherActor) Put(_ context.Context, t txn.Transaction) error {
	a.inFlight = &t
	a.passTime()
	a.inFlight = nil
	if other := a.world.put(t); other == nil {
		a.log("records %s %s@%s %v marker %q", t.Type, t.UID, t.Revision, t.Labels, t.Marker)
		if a.choices.happens(a.settings.lostPut) {
			a.log("  and the answer is lost")
			return errLost
		}
		a.passTime()
		return nil
	}
	a.pause()
	at, ok := a.world.find(t)
	if !a.mutant.trustsNames && (!ok || !a.world.queue[at].IsSameEvent(t)) {
		return errTaken
	}
	return nil
}

// passTime gives others turns while a request is under way.
func (a *watcherActor) passTime() {
	a.busy = true
	for a.choices.happens(a.settings.slow) {
		a.pause()
		a.converse()
		a.receive()
	}
	a.busy = false
}

// rev returns a number as a revision.
func rev(rv int) revision.Revision { return revisions[min(rv, len(revisions)-1)] }

var revisions = func() (all [len(rvTexts)]revision.Revision) {
	for i := range all {
		all[i] = revision.Of(rvText(i))
	}
	return all
}()
