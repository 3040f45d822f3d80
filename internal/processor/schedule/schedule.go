// Package schedule decides when a processor works on a node: it coalesces saves, prefers the owner
// of a node for a moment, and never delays a restore in favor of a save.
//
// All delays count from times that are stored in the cluster, so that a process inherits the age of
// the transactions that it finds. All delays are bounded: any process may take work that is older
// than the bounds.
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
	// unreadyStep is the failover delay for all members that are not ready. Most of them are gone. A
	// member that still runs has missed two renewals, and is most likely late with its nodes, too.
	unreadyStep = time.Second
	// limit bounds the failover delay, whatever the number of replicas, dead or alive.
	limit = 5 * time.Second
	// returns is the number of batch periods for which the end of an incarnation waits for the node to
	// return. The save is not needed meanwhile, and together with the return it costs one lock instead
	// of two. When 5,000 nodes are deleted and return, this saves one lock in six.
	returns = 9
)

// foreignPriorities is the number of different priorities of nodes with another owner. The metric
// workqueue_depth of controller-runtime distinguishes 25 priorities per queue, and is wrong with
// more.
const foreignPriorities = 20

// The priorities of nodes, see [Priority]. Urgent nodes of other owners have a priority from
// UrgentPriority to UrgentPriority+foreignPriorities-1.
const (
	NormalPriority = 0
	UrgentPriority = 50
	OwnedPriority  = 100
)

// Pending summarizes the pending transactions of a node. The zero value means that there are none.
type Pending struct {
	// First identifies the first transaction.
	First types.UID
	// Since is when the first transaction was recorded, or zero if that is unknown.
	Since time.Time
	// Urgent reports whether there are urgent transactions, see [Urgent]. UrgentSince is when the
	// first of them was recorded.
	Urgent      bool
	UrgentSince time.Time
	// Ended reports whether the last transaction is the end of an incarnation, and Ends whether any
	// is.
	Ended, Ends bool
}

// Of summarizes transactions, which are ordered oldest first.
func Of(pending []queue.Queued) Pending {
	if len(pending) == 0 {
		return Pending{}
	}
	p := Pending{
		First: pending[0].ObjectUID,
		Since: recordedAt(pending[0]),
		Ended: pending[len(pending)-1].Type == txn.Deleted,
		Ends:  slices.ContainsFunc(pending, func(t queue.Queued) bool { return t.Type == txn.Deleted }),
	}
	if i := slices.IndexFunc(pending, func(t queue.Queued) bool { return Urgent(t.Transaction) }); i >= 0 {
		p.Urgent, p.UrgentSince = true, recordedAt(pending[i])
	}
	return p
}

// AtOnce returns p as if its transactions were urgent.
func (p Pending) AtOnce() Pending {
	p.Urgent, p.UrgentSince = true, p.Since
	return p
}

// Urgent reports whether a transaction must not be delayed: it restores labels, or a user waits for
// it.
func Urgent(t txn.Transaction) bool { return t.Type == txn.Added || t.AtOnce }

// recordedAt returns when a transaction was recorded: by the watcher's clock, but at most the time
// of the API server, which has a precision of one second.
func recordedAt(t queue.Queued) time.Time {
	if latest := t.Created.Add(time.Second); t.ObservedAt.IsZero() || !t.Created.IsZero() && latest.Before(t.ObservedAt) {
		return latest
	}
	return t.ObservedAt
}

// Due returns when a process may work on a node, given that it first saw the node's first
// transaction at the time seen. Batch is the batch period of saves; zero means that they are not
// delayed. A watcher's clock that is ahead of this process cannot lengthen a delay: no delay starts
// later than seen.
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

// DueAtLast returns the time after which work on a node is late. It is [Due], except that the end of
// an incarnation may have waited for the node to return, even if it is no longer the last
// transaction.
func DueAtLast(p Pending, place ring.Place, batch time.Duration, seen time.Time) time.Time {
	p.Ended = p.Ends
	return Due(p, place, batch, seen)
}

// Recheck periods of Nodes that have not reported the identity of their machine yet. A kubelet
// reports it within seconds, or never.
const (
	minRecheck = 500 * time.Millisecond
	maxRecheck = time.Minute
	// foreignRecheck applies to nodes with another owner. If that owner ends without this process
	// learning of it, the next recheck takes over.
	foreignRecheck = 5 * time.Minute
)

// Recheck returns the delay until the next check of a Node of the given age that has not reported
// the identity of its machine. The delay grows with the age, so no state is needed. If the age is
// negative, as the API server's clock is ahead, the delay is that of an old Node. Processes that do
// not own the node recheck rarely.
func Recheck(age time.Duration, place ring.Place) time.Duration {
	switch {
	case failover(place) > 0:
		return foreignRecheck
	case age < 0:
		return maxRecheck
	}
	return min(max(age/2, minRecheck), maxRecheck)
}

// Priority orders the nodes that are due: nodes with an urgent transaction first, and among them
// the nodes that this process owns. Under load nodes become available to every process before their
// owner gets to them; the order keeps other processes from competing for them while they have nodes
// of their own. Nodes of other owners have a random order: their owners take the oldest first, and
// a helper with the same order would compete for the same locks.
func Priority(urgent bool, place ring.Place) int {
	switch {
	case !urgent:
		return NormalPriority
	case place.Rank > 0:
		return UrgentPriority + rand.IntN(foreignPriorities) //nolint:gosec // no secret
	}
	return OwnedPriority
}

// failover returns how long a node is reserved for the processes of lower rank.
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

// Schedule holds the state that a process keeps for each node with pending transactions. It is safe
// for concurrent use.
type Schedule struct {
	// Batch is the batch period of saves.
	Batch time.Duration

	mu    sync.Mutex
	nodes map[string]node
}

// node is the state of a node.
type node struct {
	first types.UID
	seen  time.Time
	// begun reports whether this process has begun to work on the node. It then continues without
	// delay.
	begun bool
}

// Wait returns the delay until a node is due, or zero if it is.
func (s *Schedule) Wait(name string, p Pending, place ring.Place, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.nodes[name]
	if n.begun {
		return 0
	}
	if !ok || n.first != p.First {
		n = node{first: p.First, seen: now}
		if s.nodes == nil {
			s.nodes = map[string]node{}
		}
		s.nodes[name] = n
	}
	return max(0, Due(p, place, s.Batch, n.seen).Sub(now))
}

// SeenBefore returns the nodes that this process has not begun to work on, and whose first pending
// transaction it first saw before the given time. It uses only the clock of this process.
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

// Begin notes that this process works on a node. The node is due from then on until
// [Schedule.Forget].
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
