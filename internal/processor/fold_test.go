package processor_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// apart is a transaction that has its effect alone.
func apart(t txn.Transaction) txn.Transaction {
	t.Marker = t.ResourceVersion
	return t
}

func TestSavesOfOneIncarnationAreDoneTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("node")
	for i := range 10 {
		c.put(t, event(txn.Updated, node, "a", strconv.Itoa(100+i), set{"rack": strconv.Itoa(i)}))
	}
	c.put(t, event(txn.Deleted, node, "a", "200", set{"rack": "last"}))
	written := &faults.Log{Calls: faults.Calls{Kind: "ConfigMap", Namespace: c.records}}
	c.process(t, setup{faults: []faults.Fault{written}})
	c.waitApplied(t, node)
	assert.Equal(t, &record.Record{Node: node, Labels: set{"rack": "last"}, Version: "200", Source: "a"}, c.record(t, node))
	writes := 0
	for _, e := range written.Entries() {
		if e.Verb == faults.Create || e.Verb == faults.Update {
			writes++
		}
	}
	assert.Equal(t, 1, writes, "writes of the record: %v", written.Entries())
}

func TestSavesWaitAndRestoresDoNot(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.addNode(t, c.name("node"), set{"rack": "r1"})
	other := c.addNode(t, c.name("other"), set{"rack": "r2"})
	c.process(t, setup{saveDelay: time.Hour})
	save := seen(txn.Updated, n)
	c.put(t, save)
	c.put(t, seen(txn.Added, other)) // seen after the other one
	c.waitApplied(t, other.Name)
	queue, err := c.queued(t.Context(), n.Name)
	require.NoError(t, err)
	require.Equal(t, []string{save.Name()}, queue)
	require.Nil(t, c.record(t, n.Name))

	c.deleteNode(t.Context(), t, n)
	c.put(t, seen(txn.Deleted, n))
	back := c.addNode(t, n.Name, nil)
	c.put(t, seen(txn.Added, back))
	c.waitApplied(t, n.Name)
	assert.Equal(t, "r1", c.node(t, n.Name).Labels["rack"])
}

func TestSavesWaitNoLonger(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.addNode(t, c.name("node"), set{"rack": "r1"})
	c.process(t, setup{saveDelay: time.Second})
	began := time.Now()
	c.put(t, seen(txn.Updated, n))
	c.waitApplied(t, n.Name)
	assert.Equal(t, set{"rack": "r1"}, c.savedLabels(t, n.Name))
	assert.GreaterOrEqual(t, time.Since(began), time.Second)
}
