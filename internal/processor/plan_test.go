package processor_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

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
	assert.Equal(t, &record.Record{Node: node, Labels: set{"rack": "last"}, Revision: revision.MustParse("200"), Source: "a", Ended: true}, c.record(t, node))
	writes := 0
	for _, e := range written.Entries() {
		if e.Verb == faults.Create || e.Verb == faults.Update {
			writes++
		}
	}
	assert.Equal(t, 1, writes, "writes of the record: %v", written.Entries())
}

// deletedAndBack records the end of a node, whose last event was an edit, and its return.
func (c *cluster) deletedAndBack(t *testing.T) (back *corev1.Node, deleted txn.Transaction) {
	t.Helper()
	n := c.addNode(t, c.name("node"), set{"rack": "r2"})
	c.save(t, record.Record{Node: n.Name, Labels: set{"rack": "r1"}, Revision: revision.MustParse("9"), Source: n.UID})
	c.deleteNode(t.Context(), t, n)
	deleted = seen(txn.Deleted, n)
	back = c.addNode(t, n.Name, nil)
	c.put(t, deleted, seen(txn.Added, back))
	return back, deleted
}

func TestDeleteAndReturnCostOneReadOfTheNodeAndNoneOfTheRecord(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	back, _ := c.deletedAndBack(t)
	writes := &faults.Log{Calls: faults.Calls{Verb: faults.Update, Kind: "ConfigMap", Namespace: c.records}}
	reads := &faults.Log{Calls: faults.Calls{Verb: faults.Get, Kind: "ConfigMap", Namespace: c.records}}
	nodes := &faults.Log{Calls: faults.Calls{Verb: faults.Get, Kind: "Node"}}
	c.process(t, setup{faults: []faults.Fault{writes, reads, nodes}})
	c.waitApplied(t, back.Name)
	assert.Equal(t, "r2", c.node(t, back.Name).Labels["rack"])
	assert.Equal(t, 2, writes.Hits())
	assert.Zero(t, reads.Hits())
	assert.Equal(t, 1, nodes.Hits())
}

func TestEditAfterTheRestoreOfAnotherAmidDeleteAndReturnIsNotOverwritten(t *testing.T) {
	t.Parallel()
	for name, isNoted := range map[string]bool{"noted in the record": true, "not noted yet": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			back, deleted := c.deletedAndBack(t)
			// This processor has read the Node and saved its labels, and so knows the record.
			saved := record.Record{Labels: deleted.Labels, Revision: deleted.Revision, Source: deleted.UID}
			f := c.anotherRestores(t, back, saved, isNoted)
			c.process(t, setup{faults: []faults.Fault{f}})
			c.waitApplied(t, back.Name)
			assert.Equal(t, 1, f.Hits())
			assert.Equal(t, "edited", c.node(t, back.Name).Labels["rack"])
			assert.True(t, preserve.Owned(*c.record(t, back.Name), back.UID, ""))
		})
	}
}

func TestSavesWaitAndRestoresDoNot(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.addNode(t, c.name("node"), set{"rack": "r1"})
	other := c.addNode(t, c.name("other"), set{"rack": "r2"})
	c.process(t, setup{saveDelay: time.Hour})
	save := seen(txn.Updated, n)
	c.put(t, save)
	c.put(t, seen(txn.Added, other)) // seen after the transaction of the other node
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
