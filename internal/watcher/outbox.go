package watcher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// ErrHeld says that an event waits for its barrier: other watchers may have seen something earlier
// and not stored it yet.
var ErrHeld = errors.New("the barrier of this event has not passed")

// Event is a transaction together with how the watcher came to know of it.
type Event struct {
	txn.Transaction
	// List is the number of the latest list of Nodes when the event was taken in. The barrier of
	// that list holds the event.
	List int
	// Observed events came from the watch. Others are conclusions from a list: what came to be
	// while nobody here was watching.
	Observed bool
	// An event in an outbox stands for everything of its incarnation since First, which was
	// observed at Since: those that it superseded are not stored. The outbox sets both.
	First revision.Revision
	Since time.Time
}

// entry is an event in the outbox.
type entry struct {
	Event
	id uint64
	// inFlight says that a request to store the event is under way. It may have its effect, so
	// nothing supersedes the event.
	inFlight bool
}

// Known knows what others have stored.
type Known interface {
	// Has reports whether a transaction is known to be stored, or to have its effect. False says
	// nothing.
	Has(ctx context.Context, t txn.Transaction) bool
}

// Store stores a transaction.
type Store interface {
	// Put returns nil if the transaction is stored, or has been, whoever stored it. Any other
	// answer says nothing.
	Put(ctx context.Context, t txn.Transaction) error
}

// Gate knows which events must wait.
type Gate interface {
	// Passed reports whether the barrier of an event has passed.
	Passed(e Event) bool
	// Wait returns how much longer to leave an event to another watcher. pending is how many events
	// of the node there are.
	Wait(ctx context.Context, e Event, pending int) time.Duration
}

// Outbox holds the events of each node that are not known to be stored, in order. It stores them
// one by one: the next only when the previous is known to be stored. It is safe for concurrent use,
// but only one caller at a time may flush a node.
type Outbox struct {
	Known Known
	Store Store
	Gate  Gate

	mu     sync.Mutex
	byNode map[string][]entry
	lastID uint64
}

// Add puts an event behind those of its node. An event that says the same as the one before it and
// more supersedes it, so that what an outbox holds of one incarnation is bounded.
func (o *Outbox) Add(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !e.Observed {
		e.Withdrawn = "" // what lies between may have been done by people, too
	}
	added := o.entry(e)
	entries := o.byNode[e.Node]
	for last := len(entries) - 1; last >= 0 && supersedes(added, entries[last]); last-- {
		added.First, added.Since = entries[last].First, entries[last].Since
		added.Transaction = preserve.Merged(entries[last].Transaction, added.Transaction)
		entries = entries[:last]
	}
	o.set(e.Node, append(entries, added))
}

// AddFirst puts an event before all others of its node.
func (o *Outbox) AddFirst(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set(e.Node, append([]entry{o.entry(e)}, o.byNode[e.Node]...))
}

func (o *Outbox) entry(e Event) entry {
	o.lastID++
	e.First, e.Since = e.Revision, e.ObservedAt
	return entry{Event: e, id: o.lastID}
}

func (o *Outbox) set(node string, entries []entry) {
	if o.byNode == nil {
		o.byNode = map[string][]entry{}
	}
	o.byNode[node] = entries
}

// supersedes reports whether storing an event has the effect of storing the previous one and then
// this one. With another marker the two may have a restore between them. With another barrier the
// previous one may be free to go, and others wait for it.
//
// The end of an incarnation supersedes its start, too: nothing is restored onto what is gone.
func supersedes(e, previous entry) bool {
	if previous.inFlight || e.UID != previous.UID || e.List != previous.List || e.Observed != previous.Observed || e.Marker != previous.Marker {
		return false
	}
	return previous.Type == txn.Updated && e.Type != txn.Added || previous.Type == txn.Added && e.Type == txn.Deleted
}

// Flush stores the events of a node. It stops at the first that cannot be stored, that waits for
// its barrier (ErrHeld), or that is left to another watcher for a while, and returns how long.
func (o *Outbox) Flush(ctx context.Context, node string) (wait time.Duration, err error) {
	for {
		e, pending := o.head(node)
		if pending == 0 {
			return 0, nil
		}
		if !o.Gate.Passed(e.Event) {
			return 0, ErrHeld
		}
		if !o.Known.Has(ctx, e.Transaction) {
			if wait := o.Gate.Wait(ctx, e.Event, pending); wait > 0 {
				return wait, nil
			}
			if !o.begin(node, e.id) {
				continue // superseded meanwhile
			}
			if err := o.Store.Put(ctx, e.Transaction); err != nil {
				o.abort(node)
				return 0, err
			}
		}
		o.remove(node, e.id)
	}
}

// Len returns how many events of a node there are.
func (o *Outbox) Len(node string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.byNode[node])
}

// Nodes returns the names of the nodes that have events.
func (o *Outbox) Nodes() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.byNode))
}

// Free returns how many nodes have an event whose barrier has passed.
func (o *Outbox) Free() (count int) {
	for _, node := range o.Nodes() {
		if e, pending := o.head(node); pending > 0 && o.Gate.Passed(e.Event) {
			count++
		}
	}
	return count
}

// Oldest returns how many events there are, and when the oldest was observed.
func (o *Outbox) Oldest() (count int, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, entries := range o.byNode {
		count += len(entries)
		if since.IsZero() || entries[0].Since.Before(since) {
			since = entries[0].Since
		}
	}
	return count, since
}

// Holds reports whether the outbox holds an event that was observed at a revision or before.
func (o *Outbox) Holds(upTo revision.Revision) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, entries := range o.byNode {
		for i := range entries {
			if entries[i].Observed && !entries[i].First.After(upTo) {
				return true
			}
		}
	}
	return false
}

// head returns the first event of a node, and how many there are.
func (o *Outbox) head(node string) (e entry, pending int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if entries := o.byNode[node]; len(entries) > 0 {
		return entries[0], len(entries)
	}
	return entry{}, 0
}

// begin marks the first event of a node as in flight. It returns false if that is another one by
// now.
func (o *Outbox) begin(node string, id uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if entries := o.byNode[node]; len(entries) > 0 && entries[0].id == id {
		entries[0].inFlight = true
		return true
	}
	return false
}

// abort marks the first event of a node as no longer in flight. If the request has its effect
// later, that is as if another watcher had stored the event.
func (o *Outbox) abort(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if entries := o.byNode[node]; len(entries) > 0 {
		entries[0].inFlight = false
	}
}

// remove takes the first event of a node away, unless it is another one by now.
func (o *Outbox) remove(node string, id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	entries := o.byNode[node]
	switch {
	case len(entries) == 0 || entries[0].id != id:
	case len(entries) == 1:
		delete(o.byNode, node)
	default:
		o.byNode[node] = slices.Delete(entries, 0, 1)
	}
}
