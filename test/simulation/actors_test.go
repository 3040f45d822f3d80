package simulation

import (
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

// carrying are the bad habits that a mutant of the services has; the zero value has none.
type carrying struct {
	dropsOnCache, restoresFromCache, recordFirst, removesFirst, patchesBlindly, savesBlindly, notesNothing, noHeadStart bool
}

// decide is preserve.Decide or a mutant of it.
type decide func(t txn.Transaction, r *preserveRecord, n *preserve.Node, policy labels.Policy) preserve.Decision

// actor is what one of the simulated parties can use. Before each API call, and wherever else time may pass, it pauses.
type actor struct {
	name    string
	world   *world
	choices *choices
	pause   func()
}

func (a *actor) tell(format string, args ...any) {
	a.world.tell("%-3s "+format, append([]any{a.name}, args...)...)
}

// user creates, edits, heartbeats and deletes the node.
func (a *actor) user() {
	for {
		a.pause()
		w := a.world
		if w.node == nil {
			own := map[string]string{"base": "1", liveKey: a.value()}
			if a.choices.oneOf(2) {
				own["a"] = a.value()
			}
			if a.choices.oneOf(4) {
				own[labels.Marker] = "99999" // of a template that somebody made of another node
			}
			w.createNode(own)
			a.tell("creates %s %v", w.node.UID, w.node.Labels)
			continue
		}
		switch a.choices.next(7) {
		case 0:
			w.deleteNode()
			a.tell("deletes the node, ought to be saved: %v", w.ghost.saved)
		case 1:
			w.write(func(*metav1.PartialObjectMetadata) {})
			a.tell("heartbeat")
		case 2:
			w.write(func(n *metav1.PartialObjectMetadata) { delete(n.Labels, "a") })
			a.tell("removes a from %s", w.node.UID)
		case 3:
			// Before the restore is noted, to remove the marker is to ask for it again.
			if w.isNoted() {
				w.write(func(n *metav1.PartialObjectMetadata) { delete(n.Labels, labels.Marker) })
				a.tell("removes the marker from %s", w.node.UID)
			}
		default:
			w.write(func(n *metav1.PartialObjectMetadata) {
				n.Labels = maps.Clone(n.Labels)
				n.Labels["a"] = a.value()
			})
			a.tell("edits %s: %v", w.node.UID, w.node.Labels)
		}
	}
}

// value is one of a few, so that labels become again what they were, or one that no label had before, so that nothing
// is right by chance.
func (a *actor) value() string {
	if a.choices.oneOf(2) {
		return "v" + strconv.Itoa(a.world.rv)
	}
	return "w" + strconv.Itoa(a.choices.next(2))
}

// watcherActor is a watcher: what it has seen, and what it has not stored.
type watcherActor struct {
	actor
	observer watcher.Observer
	isFlaky  bool // has gaps in its watch

	position int // of the next event
	last     *metav1.PartialObjectMetadata
	pending  []txn.Transaction

	// steady is the watcher that never misses anything, nil in itself.
	steady *watcherActor
	// listedAt is the position when the nodes were last listed; storedUpTo is the position up to which everything
	// is stored.
	listedAt, storedUpTo int
	hasNoHeadStart       bool // a bad habit
}

// run is one life of a watcher.
func (a *watcherActor) run() {
	a.pause() // list the nodes
	a.position, a.last, a.pending = len(a.world.events), a.world.node, nil
	listed := a.last
	a.listedAt = a.position
	for !a.mayStore() {
		a.pause()
	}
	a.pause() // list the records
	if listed != nil {
		var r *preserveRecord
		if a.world.record != nil {
			r = &a.world.record.record
		}
		a.pending = a.observer.CatchUp(listed, r, len(a.world.queue) > 0, time.Time{})
		a.tell("starts, sees %s@%s, records %d", listed.UID, listed.ResourceVersion, len(a.pending))
	}
	for {
		a.pause()
		if len(a.pending) == 0 {
			a.storedUpTo = a.position
		}
		if len(a.pending) > 0 && a.mayStore() && (a.position == len(a.world.events) || a.choices.oneOf(2)) {
			a.store()
			continue
		}
		a.receive()
	}
}

// mayStore says whether the head start is over: by then the steady watcher has stored what there was before the list.
// That is the one assumption about time.
func (a *watcherActor) mayStore() bool {
	return a.steady == nil || a.hasNoHeadStart || a.steady.storedUpTo >= a.listedAt
}

// isDone says whether everything is stored.
func (a *watcherActor) isDone() bool {
	return len(a.pending) == 0 && a.position == len(a.world.events)
}

// receive takes the next event, or sees after a gap what is there now.
func (a *watcherActor) receive() {
	w := a.world
	if a.position == len(w.events) {
		return
	}
	if a.isFlaky && a.choices.oneOf(8) {
		a.listedAt = len(w.events)
		a.tell("relists after a gap")
		a.pending = append(a.pending, a.observer.Observe(a.last, w.node, time.Time{})...)
		a.position, a.last = len(w.events), w.node
		return
	}
	e := w.events[a.position]
	a.position++
	if e.deleted {
		a.pending = append(a.pending, a.observer.Observe(e.node, nil, time.Time{})...)
		a.last = nil
		return
	}
	a.pending = append(a.pending, a.observer.Observe(a.last, e.node, time.Time{})...)
	a.last = e.node
}

// store puts the oldest pending transaction, as txn.Queue.Put does.
func (a *watcherActor) store() {
	t := a.pending[0]
	if a.world.put(t) {
		a.tell("records %s %s@%s %v marker %q", t.Type, t.UID, t.ResourceVersion, t.Labels, t.Marker)
		if a.choices.oneOf(10) {
			a.tell("  whose answer is lost")
			return
		}
		a.pending = a.pending[1:]
		return
	}
	a.pause()
	existing, ok := a.world.queue[t.ResourceVersion]
	if ok && existing.Type == t.Type && existing.UID == t.UID {
		a.pending = a.pending[1:]
	}
}

// processorActor is a processor without locks.
type processorActor struct {
	actor
	decide decide
	habits carrying
	policy labels.Policy

	queue  []storedTxn   // its cache of the transactions
	record *storedRecord // its cache of the records
	done   map[int]bool
}

// run is one life of a processor.
func (a *processorActor) run() {
	a.done = map[int]bool{}
	a.record = nil
	for {
		a.pause()
		// The two caches are two watches: one may be behind the other, and both behind the API server.
		if a.choices.oneOf(2) {
			a.record = a.world.record
		}
		a.queue = slices.SortedFunc(maps.Values(a.world.queue), func(x, y storedTxn) int { return txn.Compare(x.Transaction, y.Transaction) })
		a.drain()
	}
}

// drain applies what is in the cache, as the processor's drain does.
func (a *processorActor) drain() {
	for _, t := range a.queue {
		if a.done[t.uid] {
			continue
		}
		a.tell("takes %s %s@%s", t.Type, t.UID, t.ResourceVersion)
		if a.habits.removesFirst {
			a.pause()
			a.world.remove(t)
		}
		if !a.apply(t.Transaction) {
			return
		}
		a.pause()
		a.world.remove(t)
		a.tell("removes %s@%s", t.UID, t.ResourceVersion)
		a.done[t.uid] = true
	}
}

// apply mirrors the processor's apply, call by call. False: an error, to be tried again later.
func (a *processorActor) apply(t txn.Transaction) bool {
	mustBeFresh := false
	for range 10 {
		stored, node, isFresh := a.read(t, mustBeFresh)
		var r *preserveRecord
		if stored != nil {
			r = &stored.record
		}
		d := a.decide(t, r, node, a.policy)
		if d.Action == preserve.Nothing && !isFresh && !a.habits.dropsOnCache {
			mustBeFresh = true
			continue
		}
		if d.Action == preserve.Nothing {
			a.tell("  drops it: %s", d.Reason)
			return true
		}
		ok, lost := a.carryOut(t, stored, node, d)
		if lost {
			a.tell("  and the answer is lost")
			return false
		}
		if ok {
			return true
		}
		a.tell("  conflict")
		mustBeFresh = true
	}
	return false
}

func (a *processorActor) read(t txn.Transaction, mustBeFresh bool) (stored *storedRecord, node *preserve.Node, isFresh bool) {
	cached := a.record
	if !mustBeFresh && (t.Type != txn.Added || cached == nil) {
		return cached, nil, false
	}
	if a.habits.recordFirst {
		stored = a.world.record
	}
	if t.Type == txn.Added {
		a.pause()
		node = a.world.liveNode()
	}
	if a.habits.restoresFromCache && !mustBeFresh {
		return cached, node, true
	}
	if a.habits.recordFirst {
		return stored, node, true
	}
	a.pause()
	return a.world.record, node, true
}

// carryOut writes; ok means that it was done, lost that the answer did not come.
func (a *processorActor) carryOut(t txn.Transaction, stored *storedRecord, node *preserve.Node, d preserve.Decision) (ok, lost bool) {
	a.pause()
	next := d.Record
	if d.Action == preserve.Restore {
		if a.habits.patchesBlindly && a.world.node != nil {
			node = a.world.liveNode()
		}
		rv, patched := a.world.patchNode(node, d)
		if !patched {
			return false, false
		}
		a.tell("  restores %s@%s: %v version %s", t.UID, rv, d.Labels, d.Marker)
		if a.choices.oneOf(5) {
			return false, true
		}
		if a.habits.notesNothing {
			return true, false
		}
		next = preserve.Noted(stored.record, preserve.Node{UID: t.UID, ResourceVersion: rv, Labels: d.Labels})
		a.pause()
	}
	if a.habits.savesBlindly {
		stored = a.world.record
	}
	if !a.world.writeRecord(stored, next) {
		return false, false
	}
	a.tell("  stores %v version %s source %s restored %v", next.Labels, next.Version, next.Source, next.Restored)
	return true, a.choices.oneOf(10)
}
