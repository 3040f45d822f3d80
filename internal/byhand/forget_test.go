package byhand_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/byhand"
	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
)

// clusterWith returns a cluster in memory, where all Nodes have the revision 1000.
func clusterWith(objects ...client.Object) *inspect.Cluster {
	byName := func(obj client.Object) []string { return []string{obj.GetName()} }
	inner := fake.NewClientBuilder().WithIndex(nodes.Metadata(""), metav1.ObjectNameField, byName).WithObjects(objects...).Build()
	return &inspect.Cluster{MetadataNamespace: "records", TransactionNamespace: "transactions", Client: interceptor.NewClient(inner, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			list.SetResourceVersion("1000") // which the fake one does not set
			return err
		},
	})}
}

// TestForgetTakesANodeForAwayOnlyAfterItsRecordWasRead: the node came back between the two reads of inspect, got its labels, and
// its record says so. A floor in place of that record would lose them.
func TestForgetTakesANodeForAwayOnlyAfterItsRecordWasRead(t *testing.T) {
	r := saved()
	live := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: r.Restored.UID, Labels: set{"rack": "r1"}}}
	c := clusterWith(live, r.ConfigMap("records"))
	n, err := c.Node(t.Context(), "node-1")
	require.NoError(t, err)
	n.Live = nil // as it was when the Node was read
	require.NoError(t, byhand.Forget(t.Context(), c, byhand.DryRunNone, n))

	stored, err := (&records.Records{Client: c.Client, Namespace: "records"}).Get(t.Context(), "node-1")
	require.NoError(t, err)
	require.NotNil(t, stored.Record)
	assert.False(t, stored.Record.Floor)
	assert.Equal(t, set{"rack": "r1"}, stored.Record.Labels)
	assert.Equal(t, r.Restored.UID, stored.Record.Source)
	assert.Zero(t, stored.Record.Restored, "the record begins again")
}

func TestForgetLeavesAFloorOfANodeThatIsAway(t *testing.T) {
	r := saved()
	c := clusterWith(r.ConfigMap("records"))
	n, err := c.Node(t.Context(), "node-1")
	require.NoError(t, err)
	require.NoError(t, byhand.Forget(t.Context(), c, byhand.DryRunNone, n))
	stored, err := (&records.Records{Client: c.Client, Namespace: "records"}).Get(t.Context(), "node-1")
	require.NoError(t, err)
	want := &record.Record{Node: "node-1", Floor: true, Revision: stored.Record.Revision, SavedAt: stored.Record.SavedAt}
	assert.Equal(t, want, stored.Record)
	assert.Equal(t, "1000", stored.Record.Revision.String())
}
