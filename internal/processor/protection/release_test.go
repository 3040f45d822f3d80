package protection_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/processor/protection"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// silent is an observer that ignores everything.
type silent struct{}

func (silent) Applied(context.Context, txn.Transaction, preserve.Decision, *nodeview.Node) {
}
func (silent) Withheld(context.Context, txn.Transaction, preserve.Held)     {}
func (silent) Refused(context.Context, txn.Transaction, labels.Keys, error) {}
func (silent) Renewed(context.Context, txn.Transaction)                     {}
func (silent) NotGivenBack(context.Context, txn.Transaction, error)         {}
func (silent) Conflicted(error)                                             {}
func (silent) TooLarge(context.Context, txn.Transaction, error)             {}

// saveEnd saves the end of a node before its release, and returns the record that is then stored.
// The cache provides the records.
func saveEnd(t *testing.T, live, cache client.Client, end txn.Transaction) *record.Record {
	t.Helper()
	all := &records.Records{Client: live, Cache: cache, Namespace: "records"}
	c := &protection.Controller{
		Records: all, Queue: &queue.Queue{Client: live, Namespace: "queue"}, Index: queue.NewIndex(),
		Applier: &apply.Applier{Nodes: &nodes.Nodes{Client: live}, Records: all, Observer: silent{}},
	}
	require.NoError(t, c.Save(t.Context(), end))
	stored, err := all.Get(t.Context(), end.Node)
	require.NoError(t, err)
	return stored.Record
}

// The cache has a record that has been removed meanwhile. Since then an unprotected incarnation has
// come and gone, and its end is in the queue.
func TestEndOfANodeDoesNotOvertakeItsQueue(t *testing.T) {
	const node = "node-1"
	unprotected := txn.Transaction{Type: txn.Deleted, Node: node, UID: "u2", Revision: revision.MustParse("20"), Labels: map[string]string{"rack": "r2"}}
	protected := txn.Transaction{Type: txn.Deleted, Node: node, UID: "u3", Revision: revision.MustParse("30"), Labels: map[string]string{"rack": "r3"}}
	removed := record.Record{Node: node, Labels: map[string]string{"rack": "r1"}, Revision: revision.MustParse("5"), Source: "u1"}
	floor := preserve.Forgotten(node, nil, nil, revision.MustParse("10"))
	live := faults.Fake().WithObjects(floor.ConfigMap("records"), unprotected.ConfigMap("queue")).Build()
	behind := faults.Fake().WithObjects(removed.ConfigMap("records")).Build()
	stored := saveEnd(t, live, behind, protected)
	assert.Equal(t, map[string]string{"rack": "r2"}, stored.Labels)
}

// The datastore was replaced while the end of u1 was in the queue, so that its revision is higher
// than all of this history. u2 is deleted before it gets its labels.
func TestEndOfANodeDoesNotOvertakeAnEarlierHistory(t *testing.T) {
	const node = "node-1"
	saved := record.Record{Node: node, Labels: map[string]string{"rack": "r1"}, Revision: revision.MustParse("1000"), Source: "u1"}
	former := txn.Transaction{Type: txn.Deleted, Node: node, UID: "u1", Revision: revision.MustParse("1001"), Labels: map[string]string{"rack": "r2"}}
	end := txn.Transaction{Type: txn.Deleted, Node: node, UID: "u2", Revision: revision.MustParse("12"), Labels: map[string]string{}}
	stored := faults.Fake().WithObjects(saved.ConfigMap("records"), former.ConfigMap("queue")).Build()
	live := interceptor.NewClient(stored, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		list.SetResourceVersion("20")
		return err
	}})
	assert.Equal(t, map[string]string{"rack": "r2"}, saveEnd(t, live, live, end).Labels)
}

// The datastore was replaced while a withdrawal by the agents of u1 was in the queue.
func TestEndOfANodeKnowsAWithdrawalOfAnEarlierHistory(t *testing.T) {
	const node = "node-1"
	kept := map[string]string{"rack": "r1"}
	saved := record.Record{
		Node: node, Labels: map[string]string{"pool": "a", "rack": "r1"}, Machine: "pool", Revision: revision.MustParse("1000"), Source: "u1",
	}
	withdrawn := txn.Transaction{Type: txn.Updated, Node: node, UID: "u1", Revision: revision.MustParse("1001"), Labels: kept, Withdrawn: "pool"}
	end := txn.Transaction{Type: txn.Deleted, Node: node, UID: "u1", Revision: revision.MustParse("12"), Labels: kept}
	stored := faults.Fake().WithObjects(saved.ConfigMap("records"), withdrawn.ConfigMap("queue")).Build()
	live := interceptor.NewClient(stored, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		list.SetResourceVersion("20")
		return err
	}})
	last := saveEnd(t, live, live, end)
	assert.Equal(t, kept, last.Labels)
	assert.Empty(t, last.Overruled, "no person has removed pool")
	assert.Equal(t, end.Revision, last.Revision)
}

// A user has removed a label of the agents. Before a processor applies that, the node is deleted.
func TestEndOfANodeForgetsNoRemovalThatWaitsInTheQueue(t *testing.T) {
	const node = "node-1"
	kept := map[string]string{"rack": "r1"}
	saved := record.Record{
		Node: node, Labels: map[string]string{"pool": "a", "rack": "r1"}, Machine: "pool", Revision: revision.MustParse("5"), Source: "u1",
	}
	removal := txn.Transaction{Type: txn.Updated, Node: node, UID: "u1", Revision: revision.MustParse("10"), Labels: kept}
	end := txn.Transaction{Type: txn.Deleted, Node: node, UID: "u1", Revision: revision.MustParse("11"), Labels: kept}
	live := faults.Fake().WithObjects(saved.ConfigMap("records"), removal.ConfigMap("queue")).Build()
	stored := saveEnd(t, live, live, end)
	assert.Equal(t, kept, stored.Labels)
	assert.Equal(t, labels.Keys("pool"), stored.Overruled)
	assert.True(t, stored.Ended)
}

// Labels were restored onto a node whose agents had set one more. A user has removed that label,
// and the node is deleted before the restore is noted.
func TestEndOfANodeKnowsARemovalBeforeTheNoteOfItsRestore(t *testing.T) {
	const node = "node-1"
	kept := map[string]string{"rack": "r1"}
	saved := record.Record{Node: node, Labels: kept, Revision: revision.MustParse("5"), Source: "u1"}
	added := txn.Transaction{
		Type: txn.Added, Node: node, UID: "u2", Revision: revision.MustParse("10"), Labels: map[string]string{"pool": "a"}, Machine: "pool",
	}
	end := txn.Transaction{Type: txn.Deleted, Node: node, UID: "u2", Revision: revision.MustParse("12"), Labels: kept, Marker: "5"}
	live := faults.Fake().WithObjects(saved.ConfigMap("records"), added.ConfigMap("queue")).Build()
	stored := saveEnd(t, live, live, end)
	assert.Equal(t, kept, stored.Labels)
	assert.Equal(t, labels.Keys("pool"), stored.Overruled)
	assert.True(t, stored.Ended)
}

// The webhook admitted u2 with the record from before the end of u1, which is still in the queue,
// since u1 was deleted before it had the finalizer. Then u2 is edited and deleted. If a processor
// has restored labels onto u2, its labels are saved whatever is recorded afterwards.
func TestEndOfANodeThatWasAdmittedTooEarly(t *testing.T) {
	const node = "node-1"
	rack := func(value string) map[string]string { return map[string]string{"rack": value} }
	for name, tc := range map[string]struct {
		formerEnd   string // the rack at the end of u1
		addedMarker string // the marker of u2 when it was added
		want        string
	}{
		"the former one has later labels":     {formerEnd: "r2", addedMarker: "5", want: "r2"},
		"the former one has the same labels":  {formerEnd: "r1", addedMarker: "5", want: "r3"},
		"a processor has put the labels back": {formerEnd: "r2", addedMarker: "", want: "r3"},
	} {
		t.Run(name, func(t *testing.T) {
			saved := record.Record{Node: node, Labels: rack("r1"), Revision: revision.MustParse("5"), Source: "u1"}
			former := txn.Transaction{Type: txn.Deleted, Node: node, UID: "u1", Revision: revision.MustParse("7"), Labels: rack(tc.formerEnd)}
			added := txn.Transaction{
				Type: txn.Added, Node: node, UID: "u2", Revision: revision.MustParse("10"), Labels: rack("r1"), Marker: tc.addedMarker, FoundsRecord: true,
			}
			end := txn.Transaction{Type: txn.Deleted, Node: node, UID: "u2", Revision: revision.MustParse("12"), Labels: rack("r3"), Marker: "5"}
			live := faults.Fake().WithObjects(saved.ConfigMap("records"), former.ConfigMap("queue"), added.ConfigMap("queue")).Build()
			assert.Equal(t, rack(tc.want), saveEnd(t, live, live, end).Labels)
		})
	}
}

// All watches are cut and resume between the read of the Node and the save of its labels. Meanwhile,
// etcd may have been restored and have passed the revision that was read.
func TestNodeOfALostFutureIsNotReleased(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "a", Labels: map[string]string{"rack": "lost"}}}
	api, past := faults.Fake().WithObjects(node).Build(), rewind.New()
	c := &protection.Controller{Nodes: &nodes.Nodes{Client: api}, Rewind: past}
	readAt := time.Now()
	read, err := c.Nodes.Get(t.Context(), node.Name)
	require.NoError(t, err)
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(node), node))
	node.Labels["rack"] = "r1"
	require.NoError(t, api.Update(t.Context(), node))
	require.NoError(t, c.Unchanged(t.Context(), read, readAt), "no watch was cut: the write of the Node has its own condition")

	requests := toolscache.ToListerWatcherWithContext(past.Requests(&toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "900"}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}))
	w, err := requests.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "300"})
	require.NoError(t, err)
	w.Stop()
	assert.ErrorIs(t, c.Unchanged(t.Context(), read, readAt), protection.ErrChanged)
}
