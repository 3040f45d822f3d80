package processor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

func TestEveryActionHasItsEvent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.process(t, setup{})
	n := c.addNode(t, c.name("node"), set{"rack": "r1"})
	first := *n
	c.put(t, seen(txn.Added, n))
	c.waitApplied(t, n.Name)
	c.edit(t.Context(), t, n, func(n *corev1.Node) { n.Labels["team"] = "blue" })
	edited := *n
	c.put(t, seen(txn.Updated, n))
	c.waitApplied(t, n.Name) // otherwise the next transaction would save for this one, too
	c.deleteNode(t.Context(), t, n)
	c.put(t, seen(txn.Deleted, n)) // the same labels, seen later: a note, but no event
	c.waitApplied(t, n.Name)
	again := c.addNode(t, n.Name, nil)
	c.put(t, seen(txn.Added, again))
	c.waitApplied(t, n.Name)

	want := []string{
		fmt.Sprintf("Normal LabelsSaved %s Saved 1 labels, version %s.", first.UID, first.ResourceVersion),
		fmt.Sprintf("Normal LabelsSaved %s Saved 2 labels, version %s.", first.UID, edited.ResourceVersion),
		fmt.Sprintf("Normal LabelsRestored %s Restored 2 labels, version %s.", again.UID, edited.ResourceVersion),
	}
	require.EventuallyWithT(t, func(ct *assert.CollectT) { assert.ElementsMatch(ct, want, c.eventsOf(t.Context(), ct, n.Name)) }, patience, tick)
}

// eventsOf returns the notes of the events on a node.
func (c *cluster) eventsOf(ctx context.Context, t require.TestingT, node string) []string {
	var list eventsv1.EventList
	require.NoError(t, c.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault)))
	recorded := []string{}
	for _, e := range list.Items {
		if e.Regarding.Name == node {
			recorded = append(recorded, fmt.Sprintf("%s %s %s %s", e.Type, e.Reason, e.Regarding.UID, e.Note))
		}
	}
	return recorded
}

// More nodes have an event at the same time than the burst allows. Warnings are emitted
// nevertheless.
func TestFleetDoesNotFloodTheAPIServerWithEvents(t *testing.T) {
	c, registry := newCluster(t), prometheus.NewRegistry()
	const fleet = 250
	nodes := make([]string, fleet)
	for i := range nodes {
		nodes[i] = c.name(fmt.Sprint("node-", i))
		c.put(t, event(txn.Updated, nodes[i], "a", "9", set{"rack": "r1"}))
	}
	stuck := c.name("stuck")
	unreadable := record.Record{Node: stuck}.ConfigMap(c.records)
	unreadable.Data["labels_restored"] = "nonsense"
	require.NoError(t, c.Create(t.Context(), unreadable))
	c.process(t, setup{metrics: registry})
	c.waitApplied(t, nodes...)
	leftOut := value(t, registry, `nodekeeper_events_left_out_total{reason="LabelsSaved"}`)
	assert.Positive(t, leftOut)
	c.put(t, event(txn.Deleted, stuck, "a", "9", set{"rack": "r1"}))
	c.waitEvent(t, c.records, stuck, "RecordUnreadable")

	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		var list eventsv1.EventList
		require.NoError(ct, c.List(t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
		ours := slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return !slices.Contains(nodes, e.Regarding.Name) })
		assert.InDelta(ct, fleet-leftOut, len(ours), 0, "every event is made or counted")
	}, patience, tick)
}
