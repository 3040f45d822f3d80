package ui

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"sync"
)

// maxGone bounds the removals that a journal remembers. A reader that is further behind restarts.
const maxGone = 10_000

// Change is the last state of an entry of a [Journal].
type Change struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
	// Value is the entry as JSON, or nil if the entry was removed.
	Value json.RawMessage `json:"value,omitempty"`
}

// Position is the position of a reader in a [Journal]. The zero value is before all changes.
type Position struct {
	// at is the number of the last change that was read. Began is the number of the last change
	// when the reader started, which does not need earlier removals.
	at, began uint64
}

// Journal keeps the last state of each entry, in the order of their changes. It has no state per
// reader: readers keep their positions. It is safe for concurrent use.
type Journal struct {
	mu      sync.Mutex
	last    uint64 // the number of the last change
	entries map[entryID]*list.Element
	order   *list.List // of entry, oldest change first
	gone    *list.List // of entry: removals that are still in order, oldest first
	floor   uint64     // the number of the last removal that was dropped
	changed chan struct{}
}

type entryID struct{ kind, key string }

type entry struct {
	id    entryID
	at    uint64
	value json.RawMessage
}

// NewJournal returns an empty journal.
func NewJournal() *Journal {
	return &Journal{entries: map[entryID]*list.Element{}, order: list.New(), gone: list.New(), changed: make(chan struct{})}
}

// Set sets the state of an entry. It does nothing if the state is the same.
func (j *Journal) Set(kind, key string, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding %s %q: %w", kind, key, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	id := entryID{kind, key}
	if element, ok := j.entries[id]; ok && bytes.Equal(element.Value.(entry).value, encoded) {
		return nil
	}
	j.putLocked(entry{id: id, value: encoded})
	return nil
}

// Remove removes an entry.
func (j *Journal) Remove(kind, key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	id := entryID{kind, key}
	if element, ok := j.entries[id]; !ok || element.Value.(entry).value == nil {
		return
	}
	j.putLocked(entry{id: id})
	j.gone.PushBack(entry{id: id, at: j.last})
	for j.gone.Len() > maxGone {
		j.forgetLocked(j.gone.Remove(j.gone.Front()).(entry))
	}
}

// putLocked moves an entry to the end.
func (j *Journal) putLocked(e entry) {
	j.last++
	e.at = j.last
	if element, ok := j.entries[e.id]; ok {
		j.order.Remove(element)
	}
	j.entries[e.id] = j.order.PushBack(e)
	close(j.changed)
	j.changed = make(chan struct{})
}

// forgetLocked drops a removal, unless the entry was set or removed again since.
func (j *Journal) forgetLocked(removal entry) {
	element, ok := j.entries[removal.id]
	if !ok {
		return
	}
	if e := element.Value.(entry); e.value == nil && e.at == removal.at {
		j.floor = max(j.floor, e.at)
		j.order.Remove(element)
		delete(j.entries, removal.id)
	}
}

// After returns up to limit entries that changed after a position, and the position after them.
// More reports whether others follow. Expired reports whether the position is so old that removals
// were dropped: the reader must then discard its state and restart from the zero position.
func (j *Journal) After(p Position, limit int) (changes []Change, next Position, more, expired bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p == (Position{}) {
		p.began = j.last
	} else if max(p.at, p.began) < j.floor {
		return nil, Position{}, true, true
	}
	first := j.order.Back()
	for first != nil && first.Prev() != nil && first.Prev().Value.(entry).at > p.at {
		first = first.Prev()
	}
	next = p
	for at := first; at != nil; at = at.Next() {
		e := at.Value.(entry)
		if e.at <= p.at {
			continue
		}
		if len(changes) == limit {
			return changes, next, true, false
		}
		next.at = e.at
		if e.value != nil || e.at > p.began {
			changes = append(changes, Change{Kind: e.id.kind, Key: e.id.key, Value: e.value})
		}
	}
	return changes, next, false, false
}

// Wait waits for a change after a position. It returns the cause of ctx if that ends first.
func (j *Journal) Wait(ctx context.Context, p Position) error {
	for {
		j.mu.Lock()
		last, changed := j.last, j.changed
		j.mu.Unlock()
		if last > p.at {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx) //nolint:wrapcheck // the caller's own error
		}
	}
}
