package watcher

import (
	"context"
	"sync/atomic"
	"time"

	"nodekeeper.dev/internal/txn"
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

// rankWait returns how much longer to leave an event to the watchers before this one. A cache whose
// watches are cut may not show yet what they have stored, so the delay counts from when a watch last
// went on after a cut. It is the longest one while the event is in doubt: most likely it is stored,
// and another attempt would only find that out.
func (g *gate) rankWait(e Event) time.Duration {
	predecessors := g.predecessors(e.Node)
	if predecessors == 0 {
		return 0
	}
	longest := until(e.Since, maxRankDelay)
	if g.known.history.Unconfirmed(e.ObservedAt) {
		return longest
	}
	since := e.Since
	if resumed := g.known.history.LastResumed(); resumed.After(since) {
		since = resumed
	}
	return min(until(since, time.Duration(predecessors)*rankDelay), longest)
}

// storedByOthers reports whether another watcher has most likely stored a transaction when this one
// comes to it. Not during a shutdown, nor if another watcher waits for it: then nothing was left to
// others.
func (g *gate) storedByOthers(t txn.Transaction) bool {
	return !g.hurried.Load() && !g.barrier.Owes(t.Revision) && g.predecessors(t.Node) > 0
}

// predecessors returns how many watchers come before this one. Those that are not ready count as
// one.
func (g *gate) predecessors(node string) int {
	if g.ring == nil {
		return 0
	}
	ready, unready := g.ring.Rank(node)
	if unready {
		ready++
	}
	return ready
}
