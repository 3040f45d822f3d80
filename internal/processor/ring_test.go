package processor_test

import (
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
)

// turnStep is the failover delay per rank.
const turnStep = 3 * time.Second

func TestNodeOfADeadOwnerIsTakenByTheNext(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.addNode(t, c.name("node"), set{"rack": "r7"})
	c.process(t, setup{rank: 1})
	began := time.Now()
	c.put(t, seen(txn.Updated, n))
	c.waitApplied(t, n.Name)
	assert.Equal(t, set{"rack": "r7"}, c.record(t, n.Name).Labels)
	assert.GreaterOrEqual(t, time.Since(began), turnStep-time.Second, "it leaves it to the owner at first")
}

// A rank of two means a delay of five seconds. The first rounds may be late on a busy machine.
func TestNodeOfALeavingOwnerIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	const rounds, limit = 5, 5 * time.Second
	c := newCluster(t)
	here := newSpot(2)
	c.process(t, setup{ring: here})
	for range rounds {
		n := c.addNode(t, c.name("node"), set{"rack": "r7"})
		asked := here.asked.Load()
		began := time.Now()
		c.put(t, seen(txn.Updated, n))
		// Place is called once on delivery, and once more when the node must wait.
		require.Eventually(t, func() bool { return here.asked.Load() >= asked+2 }, patience, tick)
		here.move(0)
		c.waitApplied(t, n.Name)
		if time.Since(began) < limit {
			return
		}
		require.NoError(t, c.Delete(t.Context(), n))
		here.move(2)
	}
	t.Errorf("the node has waited for %s in each of %d rounds, although this processor is its owner", limit, rounds)
}

// The failover delay applies once, not after each turn.
func TestLongQueueOfADeadOwnerIsTakenAsAWhole(t *testing.T) {
	t.Parallel()
	const turns, turn, rounds = 5, 20, 5
	for range rounds { // the first rounds may be late on a busy machine
		c := newCluster(t)
		name := c.name("node")
		for i := range turns * turn {
			c.put(t, event(txn.Updated, name, "a", strconv.Itoa(1000+i), set{"rack": strconv.Itoa(i)}))
		}
		began := time.Now()
		stop := c.process(t, setup{rank: 1})
		c.waitApplied(t, name)
		took := time.Since(began)
		stop()
		assert.Equal(t, set{"rack": strconv.Itoa(turns*turn - 1)}, c.record(t, name).Labels)
		if took < turns*turnStep {
			return
		}
	}
	t.Errorf("the queue has taken %s in each of %d rounds", turns*turnStep, rounds)
}

func TestNodesAreWorkedOnByTheirOwners(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	log := &faults.Log{}
	c.process(t, setup{rank: 1, faults: []faults.Fault{log}})
	c.process(t, setup{rank: 0})
	began := time.Now()
	for range 5 {
		n := c.addNode(t, c.name("node"), set{"rack": "r7"})
		c.put(t, seen(txn.Updated, n))
		c.waitApplied(t, n.Name)
		require.NoError(t, c.Delete(t.Context(), n))
	}
	if time.Since(began) < turnStep { // a slower machine may give the other node its turn
		asked := slices.DeleteFunc(log.Entries(), func(e faults.Entry) bool { return e.Verb == faults.List }) // as at every start
		assert.Empty(t, asked, "the other one leaves them alone")
	}
}

// turning is a ring that changes just after the first call of Place for a node that must wait.
type turning struct {
	*spot
	calls atomic.Int64
}

func (r *turning) Place(node string) ring.Place {
	p := r.spot.Place(node)
	if r.calls.Add(1) == 2 { // the first call is when the transaction is delivered
		r.move(0)
		<-time.After(300 * time.Millisecond) // the processor receives the change before it knows the node
	}
	return p
}

// A rank of two means a delay of five seconds. The first rounds may be late on a busy machine.
func TestRingChangeJustBeforeANodeWaitsIsNotMissed(t *testing.T) {
	t.Parallel()
	const rounds, limit = 5, 5 * time.Second
	for range rounds {
		c := newCluster(t)
		stop := c.process(t, setup{ring: &turning{spot: newSpot(2)}})
		n := c.addNode(t, c.name("node"), set{"rack": "r7"})
		began := time.Now()
		c.put(t, seen(txn.Updated, n))
		c.waitApplied(t, n.Name)
		took := time.Since(began)
		stop()
		if took < limit {
			return
		}
	}
	t.Errorf("the node has waited for %s in each of %d rounds, although this processor is its owner", limit, rounds)
}
