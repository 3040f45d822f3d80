package processor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// The event of a node that never got its labels does not change the saved ones, but it ends the
// absence.
func TestEventOfANodeThatWasNeverRestoredIsASignOfLife(t *testing.T) {
	t.Parallel()
	for name, typ := range map[string]txn.Type{"added": txn.Added, "updated": txn.Updated, "deleted": txn.Deleted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.name("node")
			cm := record.Record{Node: node, Labels: set{"rack": "r7"}, Revision: revision.MustParse("9"), Source: "a"}.ConfigMap(c.records)
			cm.Annotations[record.AwaySinceAnnotation] = "2006-01-02T15:04:05Z"
			require.NoError(t, c.Create(t.Context(), cm))
			before := c.record(t, node)
			c.put(t, event(typ, node, "briefly here", "20", set{"rack": "new"}))
			c.process(t, setup{})
			c.waitApplied(t, node)
			after := &corev1.ConfigMap{}
			require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: c.records, Name: node}, after))
			assert.NotContains(t, after.Annotations, record.AwaySinceAnnotation)
			assert.Equal(t, before, c.record(t, node))
		})
	}
}
