package processor

import (
	"slices"
	"sync"
	"time"

	"nodekeeper.dev/internal/txn"
)

const (
	// manyWaiting is how many nodes are to wait for a fleet to be on the move: many that went away are about to come back.
	manyWaiting = 100
	// longPatience is how many times longer saves wait then. What a fleet needs first is its restores.
	longPatience = 9
	// look is after how many delays at the latest a node is looked at again: the fleet may have come to rest.
	look = 3
)

// patience lets saves wait, so that what happens to a node within a short time is saved at once, and with one lock. It is safe for
// concurrent use.
type patience struct {
	delay time.Duration
	mu    sync.Mutex
	since map[string]time.Time // by node that waits: when the first of its transactions was observed
	over  map[string]bool      // the nodes that have waited, until nothing of them is in the queue any more
}

func newPatience(delay time.Duration) *patience {
	return &patience{delay: delay, since: map[string]time.Time{}, over: map[string]bool{}}
}

// wait returns how long to leave the transactions of a node alone before wait is asked again, zero if they have waited enough. Those that
// bring labels back, and those that somebody waits for, wait for nothing.
func (w *patience) wait(node string, pending []txn.Queued, now time.Time) time.Duration {
	if w.delay == 0 || slices.ContainsFunc(pending, func(t txn.Queued) bool { return t.Type == txn.Added || t.AtOnce }) {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over[node] {
		return 0
	}
	if _, isWaiting := w.since[node]; !isWaiting {
		w.since[node] = now
		if observed := pending[0].ObservedAt; !observed.IsZero() && observed.Before(now) { // while no processor ran, for instance
			w.since[node] = observed
		}
	}
	delay := w.delay
	if len(w.since) > manyWaiting {
		delay *= longPatience
	}
	left := w.since[node].Add(delay).Sub(now)
	if left > 0 {
		return min(left, look*w.delay)
	}
	delete(w.since, node)
	w.over[node] = true
	return 0
}

// forget says that nothing of the node is in the queue any more.
func (w *patience) forget(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, node)
	delete(w.over, node)
}
