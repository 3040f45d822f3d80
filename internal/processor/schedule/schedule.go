// Package schedule decides when a processor works on a node: it coalesces saves, leaves a node to
// its owner for a moment, and never delays restores for a save.
//
// All delays count from times that are stored in the cluster, so that a process inherits the age of
// what it finds. All are bounded: work that is older than the bounds is free for every process that
// sees it.
package schedule

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
)

const (
	// step is the failover delay per rank.
	step = 3 * time.Second
	// unreadyStep is the failover delay for all members that are not ready together. Most of them are
	// gone. One that still runs has missed two renewals, and is most likely late with its nodes, too.
	unreadyStep = time.Second
	// limit bounds the failover delay, whatever the number of replicas, dead or alive.
	limit = 5 * time.Second
	// returns is how many batch periods the end of an incarnation waits for the node to return.
	// Nobody needs the save meanwhile, and together with the return it costs one lock instead of
	// two. With 5,000 nodes that are deleted and come back it saves one lock in six.
	returns = 9
)

// foreignPriorities is how many different priorities the nodes of other owners have. The metric
// workqueue_depth of controller-runtime tells 25 priorities of a queue from each other, and is wrong
// with more.
const foreignPriorities = 20

// The priorities of nodes, see [Priority]. Urgent nodes of other owners have UrgentPriority or up to
// foreignPriorities more.
const (
	NormalPriority = 0
	UrgentPriority = 50
	OwnedPriority  = 100
)

// Pending is what matters of the transactions of a node. The zero value: there are none.
type Pending struct {
	// First identifies the first transaction.
	First types.UID
	// Since is when the first transaction was recorded, or zero if that is unknown.
	Since time.Time
	// Urgent reports whether there are transactions that wait for nothing: those that restore
	// labels, and those that somebody waits for. UrgentSince is when the first of them was
	// recorded.
	Urgent      bool
	UrgentSince time.Time
	// Ended reports whether the last transaction is the end of an incarnation.
	Ended bool
}

// Of summarizes transactions, oldest first.
func Of(pending []queue.Queued) Pending {
	if len(pending) == 0 {
		return Pending{}
	}
	p := Pending{
		First: pending[0].ObjectUID,
		Since: recordedAt(pending[0]),
		Ended: pending[len(pending)-1].Type == txn.Deleted,
	}
	if i := slices.IndexFunc(pending, func(t queue.Queued) bool { return Urgent(t.Transaction) }); i >= 0 {
		p.Urgent, p.UrgentSince = true, recordedAt(pending[i])
	}
	return p
}

// AtOnce returns p as if somebody waited for the transactions.
func (p Pending) AtOnce() Pending {
	p.Urgent, p.UrgentSince = true, p.Since
	return p
}

// Urgent reports whether a transaction waits for nothing: it restores labels, or somebody waits for
// it.
func Urgent(t txn.Transaction) bool { return t.Type == txn.Added || t.AtOnce }

// recordedAt returns a time of the watcher's clock, bounded by the API server's, which has whole
// seconds.
func recordedAt(t queue.Queued) time.Time {
	if latest := t.Created.Add(time.Second); t.ObservedAt.IsZero() || !t.Created.IsZero() && latest.Before(t.ObservedAt) {
		return latest
	}
	return t.ObservedAt
}

// Due returns when a process may work on a node, whose first transaction it saw at the time seen.
// Batch is the batch period of saves; zero means that they wait for nothing. A clock that is ahead
// of this process's cannot lengthen a delay: it never counts from later than seen.
func Due(p Pending, place ring.Place, batch time.Duration, seen time.Time) time.Time {
	if p.Ended {
		batch *= returns
	}
	due := earlier(p.Since, seen).Add(batch)
	if p.Urgent {
		due = earlier(due, earlier(p.UrgentSince, seen))
	}
	return due.Add(failover(place))
}

// The shortest and the longest time between two looks at a Node that has not said yet which machine
// it is. A kubelet says it within seconds, or never.
const (
	minLook = 500 * time.Millisecond
	maxLook = time.Minute
	// foreignLook is between two looks at a node of another owner: if that has ended, somebody else owns
	// the node and does not know it before the next look.
	foreignLook = 5 * time.Minute
)

// LookAgain returns when to look again at a Node of an age that has not said which machine it is. The
// delay grows with the age, so that it needs no memory. Where the API server's clock is ahead, so that
// the age is negative, it is that of an old Node. Processes that do not own the node look seldom.
func LookAgain(age time.Duration, place ring.Place) time.Duration {
	switch {
	case failover(place) > 0:
		return foreignLook
	case age < 0:
		return maxLook
	}
	return min(max(age/2, minLook), maxLook)
}

// Priority orders the nodes that are due: those with an urgent transaction go first, and of these
// the ones that this process owns. Under load every node is free for everybody before its owner
// gets to it; the order keeps the others from racing for it while they have nodes of their own.
// Those of other owners come in random order: their owners take the oldest first, and would compete
// with a helper that did the same for the same locks.
func Priority(urgent bool, place ring.Place) int {
	switch {
	case !urgent:
		return NormalPriority
	case place.Rank > 0:
		return UrgentPriority + rand.IntN(foreignPriorities) //nolint:gosec // no secret
	}
	return OwnedPriority
}

// failover returns how long a node is left to those that come before this process.
func failover(place ring.Place) time.Duration {
	delay := time.Duration(place.Rank) * step
	if place.Unready {
		delay += unreadyStep
	}
	return min(delay, limit)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Schedule keeps what a process must remember of each node with pending transactions. It is safe
// for concurrent use.
type Schedule struct {
	// Batch is the batch period of saves.
	Batch time.Duration

	mu    sync.Mutex
	nodes map[string]node
}

// node is what the process remembers of a node.
type node struct {
	first types.UID
	seen  time.Time
	// begun reports whether this process has begun with the node: then it finishes it.
	begun bool
}

// Wait returns how much longer to leave a node alone, zero if it is due.
func (s *Schedule) Wait(name string, p Pending, place ring.Place, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.nodes[name]
	if n.begun {
		return 0
	}
	if !known || n.first != p.First {
		n = node{first: p.First, seen: now}
		if s.nodes == nil {
			s.nodes = map[string]node{}
		}
		s.nodes[name] = n
	}
	return max(0, Due(p, place, s.Batch, n.seen).Sub(now))
}

// SeenBefore returns the nodes that this process has not begun with, and whose first pending
// transaction it saw before a time. It does not depend on other clocks.
func (s *Schedule) SeenBefore(at time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, n := range s.nodes {
		if !n.begun && n.seen.Before(at) {
			names = append(names, name)
		}
	}
	return names
}

// Begin notes that this process works on a node, which is due from then on until [Schedule.Forget].
func (s *Schedule) Begin(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.nodes = map[string]node{}
	}
	s.nodes[name] = node{begun: true}
}

// Forget notes that a node has no pending transactions.
func (s *Schedule) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}
