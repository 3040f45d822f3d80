package inspect_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

type set = map[string]string

// TestForecastAppliesTransactionsInOrder: a node is edited, deleted, and back, and edited before its
// restore.
func TestForecastAppliesTransactionsInOrder(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("10"), Source: "first"}
	event := func(typ txn.Type, uid types.UID, rv, rack string) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: uid, Revision: revision.Of(rv), Labels: set{"rack": rack}}
	}
	n := inspect.Node{Name: "node-1", Saved: inspect.Saved{Record: r}, Live: &nodeview.Node{
		Name: "node-1", UID: "second", Revision: revision.MustParse("22"), Labels: set{"rack": "own"},
	}}
	for _, t := range []txn.Transaction{event(txn.Updated, "first", "11", "r2"), event(txn.Deleted, "first", "12", "r2")} {
		n.Pending = append(n.Pending, inspect.Pending{Transaction: t})
	}
	decisions := n.Forecast(labels.Policy{Mode: labels.Replace}, event(txn.Added, "second", "21", "own"), event(txn.Updated, "second", "22", "own"))

	var actions []preserve.Action
	for _, d := range decisions {
		actions = append(actions, d.Action)
	}
	assert.Equal(t, []preserve.Action{preserve.Save, preserve.Save, preserve.Restore, preserve.Nothing}, actions)
	assert.Equal(t, set{"rack": "r2"}, decisions[2].Labels, "the restore is of what the first saves")
	assert.Equal(t, "10", r.Revision.String(), "the argument stays as it is")
}

// TestForecastKeepsAwayWhatTheQueueShowsAsRemoved: a user sets a label before the restore, and
// removes it again.
func TestForecastKeepsAwayWhatTheQueueShowsAsRemoved(t *testing.T) {
	n := inspect.Node{
		Name:  "node-1",
		Saved: inspect.Saved{Record: &record.Record{Node: "node-1", Labels: set{"rack": "r1", "team": "blue"}, Revision: revision.MustParse("10"), Source: "first"}},
		Live:  &nodeview.Node{Name: "node-1", UID: "second", Revision: revision.MustParse("23"), Labels: set{}},
	}
	for i, own := range []set{{}, {"rack": "r2"}, {}} {
		n.Pending = append(n.Pending, inspect.Pending{Transaction: txn.Transaction{
			Type: txn.Updated, Node: "node-1", UID: "second", Revision: revision.MustParse(strconv.Itoa(20 + i)), Labels: own,
		}})
	}
	n.Pending[0].Type = txn.Added
	decisions := n.Forecast(labels.Policy{Mode: labels.Replace})
	require.Len(t, decisions, 3)
	assert.Equal(t, set{"team": "blue"}, decisions[0].Labels)
}

// TestForecastAfterTheDatastoreWasReplaced: the revisions of the record and of a transaction are
// higher than that of all Nodes.
func TestForecastAfterTheDatastoreWasReplaced(t *testing.T) {
	r := record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("1000"), Source: "first"}
	event := func(typ txn.Type, uid types.UID, rv string, own set) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: uid, Revision: revision.MustParse(rv), Labels: own}
	}
	live := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", ResourceVersion: "15", Labels: set{"rack": "r9"}}}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	atRevision20 := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		list.SetResourceVersion("20") // the fake client does not set it
		return err
	}}
	forecast := func(live *corev1.Node, pending []txn.Transaction, more ...txn.Transaction) []preserve.Decision {
		stored := faults.Fake().WithIndex(live, metav1.ObjectNameField, byName).WithObjects(live, r.ConfigMap("records"))
		for _, t := range pending {
			stored = stored.WithObjects(t.ConfigMap("transactions"))
		}
		c := &inspect.Cluster{MetadataNamespace: "records", TransactionNamespace: "transactions", Client: interceptor.NewClient(stored.Build(), atRevision20)}
		n, err := c.Node(t.Context(), "node-1")
		require.NoError(t, err)
		return n.Forecast(labels.Policy{Mode: labels.Replace}, more...)
	}

	live.UID = "first"
	decisions := forecast(live.DeepCopy(), nil, event(txn.Updated, "first", "15", live.Labels))
	require.Len(t, decisions, 1)
	assert.Equal(t, preserve.Save, decisions[0].Action, "an event of this history")
	assert.Equal(t, live.Labels, decisions[0].Record.Labels)

	live.UID = "second"
	decisions = forecast(live.DeepCopy(), []txn.Transaction{event(txn.Added, "second", "12", nil), event(txn.Deleted, "first", "1001", set{"rack": "r2"})})
	require.Len(t, decisions, 2)
	assert.Equal(t, preserve.Save, decisions[0].Action, "an earlier history comes first")
	assert.Equal(t, preserve.Restore, decisions[1].Action)
	assert.Equal(t, set{"rack": "r2"}, decisions[1].Labels)
}

func TestForecastUsesTheFloor(t *testing.T) {
	floor := preserve.Forgotten("node-1", nil, nil, revision.MustParse("20"))
	n := inspect.Node{Name: "node-1", Saved: inspect.ParseSaved(floor.ConfigMap("ns"))}
	assert.False(t, n.Found(), "nothing is left of a forgotten node")
	end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "first", Revision: revision.MustParse("12")}
	next := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "next", Revision: revision.MustParse("21")}
	decisions := n.Forecast(labels.Policy{Mode: labels.Replace}, end, next)
	assert.Equal(t, preserve.Nothing, decisions[0].Action)
	assert.Equal(t, preserve.Save, decisions[1].Action)
}
