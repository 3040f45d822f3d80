package watcher

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// rankDelay is how long a watcher leaves an event to each of those that are ready and come
	// before it, and once to all the others that may be gone: far longer than one that works takes.
	rankDelay = time.Second
	// maxRankDelay bounds the time that an event is left to others, whatever their number.
	maxRankDelay = 4 * time.Second
	// noteTime is how long a watcher waits for a restore to be noted, before it records what it saw
	// of it: the note says the same. It is written milliseconds later, and may be seen seconds
	// later where a whole fleet returns.
	noteTime = 4 * time.Second
)

// Ring knows which watcher goes first at a node.
type Ring interface {
	// Rank returns how many watchers that are ready come before this one, and whether others do
	// that are not.
	Rank(node string) (ready int, unready bool)
}

// gate says which events wait, and for how long.
type gate struct {
	barrier *barrier
	ring    Ring // nil: there are no others
	known   *known
	// hurried is set at shutdown: nothing is left to others then.
	hurried atomic.Bool
}

var _ Gate = (*gate)(nil)

// Passed reports whether the barrier of an event has passed.
func (g *gate) Passed(e Event) bool { return g.barrier.Passed(e) }

// Wait returns how much longer to leave an event to others. It leaves nothing to them that another
// watcher waits for: the owner may be the one that does.
func (g *gate) Wait(ctx context.Context, e Event, pending int) time.Duration {
	if g.hurried.Load() || g.barrier.Owes(e.First) {
		return 0
	}
	wait := g.rankWait(e)
	if pending == 1 && g.known.awaitsNote(ctx, e.Transaction) {
		wait = max(wait, until(e.Since, noteTime))
	}
	return wait
}

// rankWait returns how much longer to leave an event to those that come first. What they have
// stored may be missing from a cache whose watches are cut, so the delay counts from the last cut.
// It is the longest one while the event is in doubt: most likely it is stored, and another attempt
// would only find that out.
func (g *gate) rankWait(e Event) time.Duration {
	before := g.before(e.Node)
	if before == 0 {
		return 0
	}
	longest := until(e.Since, maxRankDelay)
	if g.known.history.Unconfirmed(e.ObservedAt) {
		return longest
	}
	since := e.Since
	if cut := g.known.history.LastCut(); cut.After(since) {
		since = cut
	}
	return min(until(since, time.Duration(before)*rankDelay), longest)
}

// first reports whether no other watcher comes before this one.
func (g *gate) first(node string) bool { return g.before(node) == 0 }

// before returns how many come before this one. Those that are not ready count as one.
func (g *gate) before(node string) int {
	if g.ring == nil {
		return 0
	}
	ready, unready := g.ring.Rank(node)
	if unready {
		ready++
	}
	return ready
}
