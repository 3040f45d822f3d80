package byhand_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// clusterWith returns a cluster in memory, where all Nodes have the revision 1000.
func clusterWith(objects ...client.Object) *inspect.Cluster {
	byName := func(obj client.Object) []string { return []string{obj.GetName()} }
	inner := faults.Fake().WithIndex(nodes.Metadata(""), metav1.ObjectNameField, byName).WithObjects(objects...).Build()
	return &inspect.Cluster{MetadataNamespace: "records", TransactionNamespace: "transactions", Client: interceptor.NewClient(inner, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			list.SetResourceVersion("1000") // the fake client does not set it
			return err
		},
	})}
}

// TestForgetTakesANodeForAwayOnlyAfterItsRecordWasRead: the node returned between the two reads of
// inspect, and its labels were restored, which its record shows. A floor in place of that record
// would lose them.
func TestForgetTakesANodeForAwayOnlyAfterItsRecordWasRead(t *testing.T) {
	r := saved()
	live := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: r.Restored.UID, Labels: set{"rack": "r1"}}}
	c := clusterWith(live, r.ConfigMap("records"))
	n, err := c.Node(t.Context(), "node-1")
	require.NoError(t, err)
	n.Live = nil // the earlier read of the Node
	require.NoError(t, byhand.Forget(t.Context(), c, byhand.DryRunNone, n, false))

	stored, err := (&records.Records{Client: c.Client, Namespace: "records"}).Get(t.Context(), "node-1")
	require.NoError(t, err)
	require.NotNil(t, stored.Record)
	assert.False(t, stored.Record.Floor)
	assert.Equal(t, set{"rack": "r1"}, stored.Record.Labels)
	assert.Equal(t, r.Restored.UID, stored.Record.Source)
	assert.Zero(t, stored.Record.Restored, "the record starts over")
}

func TestForgetLeavesAFloorOfANodeThatIsAway(t *testing.T) {
	r := saved()
	c := clusterWith(r.ConfigMap("records"))
	n, err := c.Node(t.Context(), "node-1")
	require.NoError(t, err)
	require.NoError(t, byhand.Forget(t.Context(), c, byhand.DryRunNone, n, false))
	stored, err := (&records.Records{Client: c.Client, Namespace: "records"}).Get(t.Context(), "node-1")
	require.NoError(t, err)
	want := &record.Record{Node: "node-1", Floor: true, Revision: stored.Record.Revision, SavedAt: stored.Record.SavedAt}
	assert.Equal(t, want, stored.Record)
	assert.Equal(t, "1000", stored.Record.Revision.String())
}

// TestForgetNeedsTheNodeThatTheUserSaw: a Node that was live when the user was asked, so that its
// labels would remain, was deleted or replaced before the answer. Its labels would be lost without
// consent.
func TestForgetNeedsTheNodeThatTheUserSaw(t *testing.T) {
	r := saved()
	live := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: r.Restored.UID, Labels: set{"rack": "r1"}}}
	for name, becomes := range map[string]func(c client.Client) error{
		"deleted": func(c client.Client) error { return c.Delete(t.Context(), live.DeepCopy()) },
		"another": func(c client.Client) error {
			next := live.DeepCopy()
			next.UID, next.Labels = "next", nil
			return errors.Join(c.Delete(t.Context(), live.DeepCopy()), c.Create(t.Context(), next))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterWith(live.DeepCopy(), r.ConfigMap("records"))
			n, err := c.Node(t.Context(), "node-1")
			require.NoError(t, err)
			require.NotNil(t, n.Live)
			require.NoError(t, becomes(c.Client))
			require.ErrorContains(t, byhand.Forget(t.Context(), c, byhand.DryRunNone, n, true), "run this again")
			stored, err := (&records.Records{Client: c.Client, Namespace: "records"}).Get(t.Context(), "node-1")
			require.NoError(t, err)
			assert.Equal(t, r.Labels, stored.Record.Labels)
		})
	}
}

// TestForgetSeesWhatIsRecordedMeanwhile: the effect of an event that was recorded while the user
// was asked would be lost.
func TestForgetSeesWhatIsRecordedMeanwhile(t *testing.T) {
	r := saved()
	c := clusterWith(r.ConfigMap("records"))
	n, err := c.Node(t.Context(), "node-1")
	require.NoError(t, err)
	end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: r.Restored.UID, Revision: revision.MustParse("900"), Labels: set{"rack": "r2"}, ObservedAt: time.Now()}
	require.NoError(t, c.Client.Create(t.Context(), end.ConfigMap("transactions")))
	require.ErrorContains(t, byhand.Forget(t.Context(), c, byhand.DryRunNone, n, false), "1 pending transaction")
	require.NoError(t, byhand.Forget(t.Context(), c, byhand.DryRunNone, n, true))
}

// TestForgetLeavesWhatIsForeign: a ConfigMap of another product with the name of a node is not a
// record.
func TestForgetLeavesWhatIsForeign(t *testing.T) {
	c := clusterWith(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "records", Name: "settings"}, Data: set{"a": "b"}})
	n, err := c.Node(t.Context(), "settings")
	require.NoError(t, err)
	require.ErrorContains(t, byhand.Forgettable(n, "settings", true), "ConfigMap records/settings is not a record")
}
