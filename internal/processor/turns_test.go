package processor_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/txn"
)

// One worker has a long queue to drain when another node arrives.
func TestLongQueueLetsOtherNodesHaveTheirTurn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	long, short := c.name("long"), c.name("short")
	const count = 100
	for i := range count {
		c.put(t, event(txn.Updated, long, "a", strconv.Itoa(1000+i), set{"rack": strconv.Itoa(i)}))
	}
	other := event(txn.Updated, short, "b", "9", set{"rack": "r1"})
	const cm = "ConfigMap"
	arrival := &faults.Race{
		Calls: faults.Calls{Verb: faults.Delete, Kind: cm, Namespace: c.transactions, Times: 1},
		First: func(context.Context) { c.put(t, other) },
	}
	removed := &faults.Log{Calls: faults.Calls{Verb: faults.Delete, Kind: cm, Namespace: c.transactions}}
	c.process(t, setup{workers: 1, faults: []faults.Fault{arrival, removed}})
	c.waitApplied(t, long, short)

	at := slices.IndexFunc(removed.Entries(), func(e faults.Entry) bool { return e.Name == other.Name() })
	assert.Less(t, at, count-1, "it had to wait for the whole of the other queue")
	assert.Equal(t, set{"rack": strconv.Itoa(count - 1)}, c.savedLabels(t, long))
	assert.Equal(t, set{"rack": "r1"}, c.savedLabels(t, short))
}
