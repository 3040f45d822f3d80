package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

// watcherActor is a watcher: what it has seen, and what it has not stored. The outbox is the real
// one.
type watcherActor struct {
	actor
	observer watcher.Observer
	outbox   *watcher.Outbox

	// What it has seen of what is stored, which is behind. Nothing is concluded from what these do
	// not have.
	queue  []*storedTxn
	record *storedRecord

	member   *member
	early    []*member // a mutant's: the others, just before the latest list
	lists    []*list
	position int // of the next event
	reached  int // the resourceVersion up to which everything was observed, or was before the list
	digest   watcher.Digest
	last     *metav1.PartialObjectMetadata
	doubtful *metav1.PartialObjectMetadata // as the latest list has it, if it must be compared with its record
	started  bool                          // the nodes were compared with their records
	ended    []int                         // the incarnations whose end it has seen, or concluded
	inFlight *txn.Transaction
	busy     bool // with a request: events are taken in meanwhile, nothing else
	cutOff   bool // its watch has ended, and the list that follows is not answered yet
}

var (
	errTaken = errors.New("the name is taken")
	errLost  = errors.New("the answer is lost")
)

// The outbox sees the world by these.
var (
	_ watcher.StoredEvents = (*watcherActor)(nil)
	_ watcher.Store        = (*watcherActor)(nil)
	_ watcher.Turn         = (*watcherActor)(nil)
)

// reset makes the watcher ready for another run.
func (a *watcherActor) reset() {
	a.observer.RecordUpdates = a.settings.recordUpdates
	a.down()
}

// down forgets all that a process has in its memory.
func (a *watcherActor) down() {
	if a.outbox == nil || a.outbox.Len(nodeName) > 0 {
		a.outbox = &watcher.Outbox{Stored: a, Store: a, Turn: a}
	}
	a.doubtful = nil
	a.last, a.started, a.busy, a.cutOff, a.inFlight = nil, false, false, false, nil
	a.position, a.reached, a.digest = 0, 0, 0
	if a.member != nil {
		a.member.dead = true
	}
	a.member, a.lists = nil, a.lists[:0]
	a.ended = a.ended[:0]
	a.queue, a.record = nil, nil
}

// run is one life of a watcher.
func (a *watcherActor) run() {
	a.member = a.world.join()
	a.lookEarly()
	a.pause()
	var early *storedRecord
	if a.mutant.recordsFirst {
		early = a.world.record
	}
	listed := a.list()
	a.tell("lists %s", nodeText(listed))
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

// start compares the nodes that were there with their records.
func (a *watcherActor) start(listed *metav1.PartialObjectMetadata, early *storedRecord) {
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
		a.tell("starts, saw %s, is to record %d", nodeText(listed), len(found))
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
	a.tell("compares %s with its record", nodeText(n))
}

// flush stores what it can. It returns false if there was nothing to do but wait.
func (a *watcherActor) flush() bool {
	a.refresh()
	_, err := a.outbox.Flush(context.Background(), nodeName)
	return !errors.Is(err, watcher.ErrHeld)
}

// isDone says whether everything is stored.
func (a *watcherActor) isDone() bool {
	return a.started && a.doubtful == nil && a.outbox.Len(nodeName) == 0 && a.position == len(a.world.events) && a.lists[len(a.lists)-1].passed
}

// isComplete says whether the watcher needs no other one: what it did not see itself is stored.
func (a *watcherActor) isComplete() bool {
	return a.started && !a.cutOff && a.doubtful == nil && !a.member.silent && a.lists[len(a.lists)-1].passed
}

// receive takes the next event, or sees after a gap what is there now.
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
		a.tell("lists anew after a gap")
		a.relist()
		return
	}
	e := w.events[a.position]
	a.position++
	a.reached = e.rv
	if e.isDelete {
		a.see(e.node, nil, false)
		return
	}
	a.see(a.last, e.node, false)
}

// relist sees what is there now: what is not there any more leaves a tombstone, the last state that
// was seen.
func (a *watcherActor) relist() {
	a.cutOff = true
	before := a.last
	a.lookEarly()
	after := a.list()
	a.last = before
	a.see(before, after, true)
}

// wake is what a watcher does after a silence for which the others may not have waited.
func (a *watcherActor) wake() {
	a.tell("wakes up")
	switch {
	case a.mutant.staysAway:
		a.member.silent = false
		a.relist()
	case a.mutant.keepsBarrier:
		a.member = a.world.join()
	default:
		a.member = a.world.join()
		a.relist()
	}
}

// see puts what the real watcher makes of an event behind what is in the outbox.
func (a *watcherActor) see(before, after *metav1.PartialObjectMetadata, relisted bool) {
	observe := a.observer.Observe
	if relisted && !a.mutant.trustsGates {
		observe = a.observer.ObserveAfterGap
	}
	transactions := observe(before, after, time.Time{})
	if a.mutant.observe != nil {
		transactions = a.mutant.observe(before, after, relisted, transactions)
	}
	for _, t := range transactions {
		a.outbox.Add(watcher.Event{Transaction: t, List: len(a.lists) - 1, Observed: !relisted})
		a.doubtful = nil // this says what there is to say
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

// catchUp is what the real watcher makes of a node that is there when it starts.
func (a *watcherActor) catchUp(listed *metav1.PartialObjectMetadata, r *record.Record, queued bool) []txn.Transaction {
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
func (a *watcherActor) Wait(context.Context, watcher.Event, int) time.Duration {
	if a.choices.happens(a.settings.leaves) {
		return time.Second
	}
	return 0
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

// Has says whether the caches show that a transaction is stored, or has had its effect.
func (a *watcherActor) Has(_ context.Context, t txn.Transaction) bool {
	if a.mutant.leavesForGood && a.choices.happens(a.settings.leaves) {
		return true
	}
	if r := a.record.get(); a.mutant.leavesAdmitted && t.Type == txn.Added && r != nil && isRestoredBy(t, *r) {
		a.tell("leaves %s %s@%s to nobody", t.Type, t.UID, t.Revision)
		return true
	}
	if !a.settings.knows || !a.isKnown(t) {
		return false
	}
	a.checkKnown(t)
	a.tell("leaves %s %s@%s out", t.Type, t.UID, t.Revision)
	return true
}

func (a *watcherActor) isKnown(t txn.Transaction) bool {
	r := a.record.get()
	if r != nil && preserve.Applied(t, *r) || a.mutant.knows != nil && a.mutant.knows(t, r, a.queue) {
		return true
	}
	for _, queued := range a.queue {
		if queued.Revision == t.Revision && queued.IsSameEvent(t) {
			return true
		}
	}
	return false
}

// checkKnown: what is left out is in the queue, or by the rules of the decision has no effect any
// more.
func (a *watcherActor) checkKnown(t txn.Transaction) {
	at, isQueued := a.world.find(t)
	isQueued = isQueued && a.world.queue[at].IsSameEvent(t)
	r := a.world.record.get()
	d := preserve.Decide(t, r, a.world.liveNode(), policy)
	if !isQueued && hasEffect(t, r, d) && !a.world.isOpenedByAnother(t, d) {
		a.world.breaks(errBrokeP1, "%s %s@%s is left out, and its effect is not stored", t.Type, t.UID, t.Revision)
		return
	}
	a.world.ghost.puts(t)
}

// Put stores a transaction, as queue.Queue.Put does. Events are taken in while the request is under
// way.
func (a *watcherActor) Put(_ context.Context, t txn.Transaction) error {
	a.inFlight = &t
	a.passTime()
	a.inFlight = nil
	if other := a.world.put(t); other == nil {
		a.tell("records %s %s@%s %v marker %q", t.Type, t.UID, t.Revision, t.Labels, t.Marker)
		if a.choices.happens(a.settings.lostPut) {
			a.tell("  and the answer is lost")
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

// passTime lets others have their turns while a request is under way.
func (a *watcherActor) passTime() {
	a.busy = true
	for a.choices.happens(a.settings.slow) {
		a.pause()
		a.converse()
		a.receive()
	}
	a.busy = false
}

// rev returns the revision of a number.
func rev(rv int) revision.Revision { return revisions[min(rv, len(revisions)-1)] }

var revisions = func() (all [len(rvTexts)]revision.Revision) {
	for i := range all {
		all[i] = revision.Of(rvText(i))
	}
	return all
}()
