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

// ErrHeld means that an event waits for its barrier: other watchers may not have stored earlier
// events yet.
var ErrHeld = errors.New("the barrier of this event has not passed")

// Event is a transaction and how the watcher learned of it.
type Event struct {
	txn.Transaction
	// List is the number of the latest list of Nodes when the event was received. The barrier of
	// that list holds the event.
	List int
	// Observed events came from the watch. Others are conclusions from a list about changes that
	// were not watched.
	Observed bool
	// An event in an outbox stands for everything of its incarnation since First, which was
	// observed at Since: the events that it superseded are not stored. The outbox sets both.
	First revision.Revision
	Since time.Time
}

// entry is an event in the outbox.
type entry struct {
	Event
	id uint64
	// inFlight means that a request to store the event has been sent. It may succeed, so nothing
	// supersedes the event.
	inFlight bool
	// life is the transaction merged with the addition before it, if there is one. An end that
	// supersedes both continues it: merging the addition last would compare it with the end alone, and
	// lose who set a label in between.
	life txn.Transaction
}

// StoredEvents finds events that others have stored.
type StoredEvents interface {
	// Has reports whether a transaction is known to be stored, or to have its effect. False proves
	// nothing.
	Has(ctx context.Context, t txn.Transaction) bool
}

// Store stores a transaction.
type Store interface {
	// Put returns nil if the transaction is stored, whoever stored it. An error does not mean that
	// it is not stored.
	Put(ctx context.Context, t txn.Transaction) error
}

// Turn decides which events must wait.
type Turn interface {
	// Passed reports whether the barrier of an event has passed.
	Passed(e Event) bool
	// Wait returns how much longer to leave an event to another watcher. pending is the number of
	// the node's events.
	Wait(e Event, pending int) time.Duration
}

// Outbox holds the events of each node that are not known to be stored, in order. It stores them
// one by one, each only after the previous one is known to be stored. It is safe for concurrent
// use, but only one caller at a time may flush a node.
type Outbox struct {
	Stored StoredEvents
	Store  Store
	Turn   Turn

	mu     sync.Mutex
	byNode map[string][]entry
	lastID uint64
}

// Add appends an event to its node's. If it includes the previous event, it supersedes it,
// which bounds the number of events of one incarnation.
func (o *Outbox) Add(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !e.Observed {
		e.Withdrawn = "" // users may have made changes in between
	}
	added := o.entry(e)
	entries := o.byNode[e.Node]
	kept := len(entries)
	for kept > 0 && supersedes(added, entries[kept-1]) {
		kept--
		added.First, added.Since = entries[kept].First, entries[kept].Since
	}
	switch superseded := entries[kept:]; {
	case len(superseded) == 1:
		added.Transaction = preserve.Merged(superseded[0].Transaction, e.Transaction)
		added.life = preserve.Merged(superseded[0].life, e.Transaction)
	case len(superseded) > 1: // the addition, and updates
		added.life = preserve.Merged(superseded[len(superseded)-1].life, e.Transaction)
		added.Transaction = added.life
	case kept > 0 && entries[kept-1].Type == txn.Added && entries[kept-1].UID == e.UID:
		added.life = preserve.Merged(entries[kept-1].Transaction, e.Transaction)
	}
	o.set(e.Node, append(entries[:kept], added))
}

// AddFirst inserts an event before all others of its node.
func (o *Outbox) AddFirst(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set(e.Node, append([]entry{o.entry(e)}, o.byNode[e.Node]...))
}

func (o *Outbox) entry(e Event) entry {
	o.lastID++
	e.First, e.Since = e.Revision, e.ObservedAt
	return entry{Event: e, id: o.lastID, life: e.Transaction}
}

func (o *Outbox) set(node string, entries []entry) {
	if o.byNode == nil {
		o.byNode = map[string][]entry{}
	}
	o.byNode[node] = entries
}

// supersedes reports whether storing an event has the effect of storing the previous one and then
// this one. With another marker, there may be a restore between the two. With another barrier, the
// previous one may be free to be stored while others wait for it.
//
// The end of an incarnation supersedes its start, too, because nothing is restored onto a deleted
// node.
func supersedes(e, previous entry) bool {
	if previous.inFlight || e.UID != previous.UID || e.List != previous.List || e.Observed != previous.Observed || e.Marker != previous.Marker {
		return false
	}
	return previous.Type == txn.Updated && e.Type != txn.Added || previous.Type == txn.Added && e.Type == txn.Deleted
}

// Flush stores the events of a node. It stops at the first that cannot be stored, that waits for
// its barrier (ErrHeld), or that is left to another watcher, and returns how long to leave it.
func (o *Outbox) Flush(ctx context.Context, node string) (wait time.Duration, err error) {
	for {
		e, pending := o.head(node)
		if pending == 0 {
			return 0, nil
		}
		if !o.Turn.Passed(e.Event) {
			return 0, ErrHeld
		}
		if !o.Stored.Has(ctx, e.Transaction) {
			if wait := o.Turn.Wait(e.Event, pending); wait > 0 {
				return wait, nil
			}
			if !o.begin(node, e.id) {
				continue // superseded in the meantime
			}
			if err := o.Store.Put(ctx, e.Transaction); err != nil {
				o.abort(node)
				return 0, err
			}
		}
		o.remove(node, e.id)
	}
}

// Len returns the number of a node's events.
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

// Free returns the number of nodes with an event whose barrier has passed.
func (o *Outbox) Free() (count int) {
	for _, node := range o.Nodes() {
		if e, pending := o.head(node); pending > 0 && o.Turn.Passed(e.Event) {
			count++
		}
	}
	return count
}

// Oldest returns the number of events, and when the oldest was observed.
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

// Held returns the nodes with an event that was observed at or before a revision, and when the first
// of each was observed. It returns no more nodes than the limit.
func (o *Outbox) Held(upTo revision.Revision, limit int) map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := map[string]time.Time{}
	for node, entries := range o.byNode {
		if len(held) == limit {
			break
		}
		at := slices.IndexFunc(entries, func(e entry) bool { return e.Observed && !e.First.After(upTo) })
		if at >= 0 {
			held[node] = entries[at].Since
		}
	}
	return held
}

// head returns the first event of a node, and the number of its events.
func (o *Outbox) head(node string) (e entry, pending int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if entries := o.byNode[node]; len(entries) > 0 {
		return entries[0], len(entries)
	}
	return entry{}, 0
}

// begin marks the first event of a node as in flight. It returns false if it is no longer the given
// one.
func (o *Outbox) begin(node string, id uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if entries := o.byNode[node]; len(entries) > 0 && entries[0].id == id {
		entries[0].inFlight = true
		return true
	}
	return false
}

// abort marks the first event of a node as no longer in flight. If the request takes effect later,
// that is as if another watcher had stored the event.
func (o *Outbox) abort(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if entries := o.byNode[node]; len(entries) > 0 {
		entries[0].inFlight = false
	}
}

// remove removes the first event of a node, if it is still the given one.
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
