package processor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// A Node is edited, and deleted before its restore and before it is protected. A watcher and a
// processor that protects nodes see that, and either may be the first to store it. What a person has
// removed stays away.
func TestRemovalBeforeARestoreThatTwoProcessesSee(t *testing.T) {
	for name, isWatcherFirst := range map[string]bool{"the watcher is first": true, "the processor is first": false} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			node := c.name("node")
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: set{"rack": "r1", "team": "a"}}}
			c.save(t, record.Record{Node: node, Labels: set{"rack": "r7", "team": "blue"}, Revision: revision.MustParse("1"), Source: "former", Ended: true})
			ends := make(chan txn.Transaction, 1)
			toLock := &faults.Race{Calls: faults.Calls{Verb: faults.Create, Kind: "Lease", Name: node, Times: 1}, First: func(context.Context) {
				if isWatcherFirst {
					c.put(t, <-ends)
				}
			}}
			c.process(t, setup{protects: true, faults: []faults.Fault{&faults.MissingRight{Calls: faults.Calls{Verb: faults.Patch, Kind: "Node"}}, toLock}})
			require.NoError(t, c.Create(t.Context(), n, client.FieldOwner("kubectl-create")))
			time.Sleep(time.Until(n.CreationTimestamp.Add(time.Second))) // managedFields have whole seconds
			before := n.DeepCopy()
			delete(n.Labels, "rack")
			n.Labels["ticket"] = "1"
			require.NoError(t, c.Patch(t.Context(), n, client.MergeFrom(before), client.FieldOwner("kubectl-label")))
			end := seen(txn.Deleted, c.lastOf(t, n))
			end.Edited = "rack,ticket"
			ends <- end
			require.EventuallyWithT(t, func(ct *assert.CollectT) {
				assert.Equal(ct, end.Revision, c.record(t, node).Revision)
			}, patience, tick)
			if !isWatcherFirst {
				c.put(t, end)
			}
			c.waitApplied(t, node)
			assert.Equal(t, set{"team": "blue", "ticket": "1"}, c.record(t, node).Labels)
		})
	}
}

// A person sets a saved label on a returned Node and removes it again, while no processor runs.
func TestLabelThatWasSetAndRemovedBeforeTheRestoreStaysAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, added := c.returned(t, set{"new": "n"}, lastLife)
	states := []txn.Transaction{added}
	c.edit(t.Context(), t, n, func(n *corev1.Node) { n.Labels["rack"] = "r8" })
	states = append(states, seen(txn.Updated, n))
	c.edit(t.Context(), t, n, func(n *corev1.Node) { delete(n.Labels, "rack") })
	states = append(states, seen(txn.Updated, n))
	c.put(t, states...)
	c.process(t, setup{})
	c.waitApplied(t, n.Name)
	got := c.node(t, n.Name)
	assert.Equal(t, lastLife.Revision.String(), got.Labels[labels.Marker], "the Node is restored")
	assert.NotContains(t, got.Labels, "rack")
}
