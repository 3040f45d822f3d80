package watcher

import (
	"sync/atomic"
	"time"

	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher/barrier"
)

const (
	// rankDelay is how long a watcher leaves an event to each ready watcher that precedes it, and
	// once to all the unready ones, which may be gone. It is far longer than a working watcher
	// needs.
	rankDelay = time.Second
	// maxRankDelay bounds the time for which an event is left to other watchers.
	maxRankDelay = 4 * time.Second
	// noteTime bounds the wait for the processor's note of a restore, which makes recording its
	// result unnecessary. The note is written within milliseconds, but may arrive seconds later
	// when a whole fleet returns.
	noteTime = 4 * time.Second
)

// Ring orders the watchers of each node.
type Ring interface {
	// Rank returns how many ready watchers precede this one, and whether any unready ones do.
	Rank(node string) (ready int, unready bool)
}

// turn decides which events wait, and for how long.
type turn struct {
	barrier *barrier.Barrier
	ring    Ring // nil if there are no others
	stored  *storedEvents
	// compared reports whether a node of the first list has been compared with its record. What
	// was observed since comes after the result.
	compared func(node string) bool
	// expedited is set at shutdown, when no event is left to others.
	expedited atomic.Bool
}

var _ Turn = (*turn)(nil)

// Passed reports whether the barrier of an event has passed, and its node is compared. A shutdown
// does not wait for the comparison.
func (t *turn) Passed(e Event) bool {
	return t.barrier.Passed(e.Node, e.List, e.Observed) && (t.expedited.Load() || t.compared(e.Node))
}

// Wait returns how much longer to leave an event to others. An event that another watcher waits for
// is not left to others, because the owner may be waiting for it.
func (t *turn) Wait(e Event, pending int) time.Duration {
	if t.expedited.Load() || t.barrier.Awaited(e.First) {
		return 0
	}
	wait := t.rankWait(e)
	if t.stored.awaits(e.Transaction, pending == 1) {
		wait = max(wait, until(e.Since, noteTime))
	}
	return wait
}

// rankWait returns how much longer to leave an event to preceding watchers. A cache whose watches
// were cut may not contain yet what they have stored, so the delay counts from when a watch last
// resumed after a cut. While the event is unconfirmed, the delay is maxRankDelay: the event is most
// likely stored, and another attempt would only find that out.
func (t *turn) rankWait(e Event) time.Duration {
	predecessors := t.predecessors(e.Node)
	if predecessors == 0 {
		return 0
	}
	longest := until(e.Since, maxRankDelay)
	if t.stored.history.Unconfirmed(e.ObservedAt) {
		return longest
	}
	since := e.Since
	if resumed := t.stored.history.LastResumed(); resumed.After(since) {
		since = resumed
	}
	return min(until(since, time.Duration(predecessors)*rankDelay), longest)
}

// storedByOthers reports whether another watcher has most likely stored a transaction by the time
// this one writes it. It is false during a shutdown, and if another watcher waits for the
// transaction, because it was not left to others then.
func (t *turn) storedByOthers(tx txn.Transaction) bool {
	return !t.expedited.Load() && !t.barrier.Awaited(tx.Revision) && t.predecessors(tx.Node) > 0
}

// predecessors returns how many watchers precede this one. All unready ones count as one.
func (t *turn) predecessors(node string) int {
	if t.ring == nil {
		return 0
	}
	ready, unready := t.ring.Rank(node)
	if unready {
		ready++
	}
	return ready
}
