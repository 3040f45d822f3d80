package retention_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/processor/retention"
	"nodekeeper.dev/internal/processor/retention/removal"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/controlplane"
)

type set = map[string]string

// hour is the retention time of most tests. longAgo is more than an hour before start.
const (
	hour    = time.Hour
	longAgo = "2006-01-02T15:04:05Z"
)

// start is the time of the first sweep.
var start = time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC)

// cluster is a test's part of the API server: its namespaces, and nodes with unique names. Its
// client is not subject to faults.
type cluster struct {
	client.WithWatch
	transactions, records string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c, err := client.NewWithWatch(api.Config, client.Options{})
	require.NoError(t, err)
	return &cluster{WithWatch: c, transactions: controlplane.Namespace(t, c), records: controlplane.Namespace(t, c)}
}

// inMemory returns a cluster for tests with fake time.
func inMemory() *cluster {
	byName := func(obj client.Object) []string { return []string{obj.GetName()} }
	inner := faults.Fake().WithIndex(nodes.Metadata(""), metav1.ObjectNameField, byName).Build()
	return &cluster{transactions: "transactions", records: "records", WithWatch: interceptor.NewClient(inner, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			list.SetResourceVersion("1000") // the fake client does not set it
			return err
		},
	})}
}

// sweeper returns the Retention of one processor.
func (c *cluster) sweeper(after time.Duration, fault ...faults.Fault) *retention.Retention {
	return c.sweeperWith(c.WithWatch, after, fault...)
}

func (c *cluster) sweeperWith(cache client.Reader, after time.Duration, fault ...faults.Fault) *retention.Retention {
	cl := faults.Client(smallPages(c.WithWatch), fault...)
	identity := "sweeper-" + rand.String(6)
	all, saved := &nodes.Nodes{Client: cl}, &records.Records{Client: cl, Cache: cache, Namespace: c.records}
	return &retention.Retention{Client: cl, Nodes: all, Records: saved, After: after, Identity: identity, Remover: &removal.Remover{
		Nodes: all, Queue: &queue.Queue{Client: cl, Namespace: c.transactions}, Records: saved,
		Locks: nodelock.New(cl, c.transactions, identity), Repeating: func(context.Context, string, error) {},
	}}
}

// smallPages limits the pages of lists, so that every paged list has several pages.
func smallPages(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if (&client.ListOptions{}).ApplyOptions(opts).Limit > 0 {
				opts = append(opts, client.Limit(2))
			}
			return c.List(ctx, list, opts...)
		},
	})
}

// observed stores an observation without a gap between two times.
func (c *cluster) observed(t *testing.T, since, last time.Time) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.records, Name: retention.LeaseName}}
	err := c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease)
	require.NoError(t, client.IgnoreNotFound(err))
	lease.Spec.AcquireTime, lease.Spec.RenewTime = new(metav1.NewMicroTime(since)), new(metav1.NewMicroTime(last))
	if err != nil {
		require.NoError(t, c.Create(t.Context(), lease))
		return
	}
	require.NoError(t, c.Update(t.Context(), lease))
}

// sweepFrom sweeps every five minutes between two times, both included.
func sweepFrom(t *testing.T, r *retention.Retention, from, to time.Time) {
	t.Helper()
	for at := from; at.Before(to); at = at.Add(5 * time.Minute) {
		require.NoError(t, r.Sweep(t.Context(), at))
	}
	require.NoError(t, r.Sweep(t.Context(), to))
}

// name returns a node name that no other test uses.
func (c *cluster) name(name string) string { return name + "-" + c.transactions }

// away saves a record of an absent node, with the start of its absence unless that is empty, and
// returns the node's name.
func (c *cluster) away(t *testing.T, name, since string) string {
	t.Helper()
	node := c.name(name)
	cm := record.Record{Node: node, Labels: set{"rack": "r7"}, Revision: revision.MustParse("9"), Source: "a"}.ConfigMap(c.records)
	if since != "" {
		cm.Annotations[record.AwaySinceAnnotation] = since
	}
	require.NoError(t, c.Create(t.Context(), cm))
	return node
}

// expired is away for a node whose record must be removed by the first sweep.
func (c *cluster) expired(t *testing.T, name string) string {
	t.Helper()
	c.observed(t, start.Add(-2*hour), start)
	return c.away(t, name, longAgo)
}

// addNode creates a node, which is deleted when the test ends.
func (c *cluster) addNode(t *testing.T, name string, own set) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own}}
	require.NoError(t, c.Create(t.Context(), n))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, client.IgnoreNotFound(c.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})))
	})
	return n
}

// event returns a transaction that is not in the queue.
func event(typ txn.Type, node string, uid types.UID, rv string) txn.Transaction {
	return txn.Transaction{Type: typ, Node: node, UID: uid, Revision: revision.MustParse(rv), ObservedAt: start}
}

// stored returns the ConfigMap of a node's record, or nil if there is none.
func (c *cluster) stored(t *testing.T, node string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{}
	err := c.Get(t.Context(), types.NamespacedName{Namespace: c.records, Name: node}, cm)
	require.NoError(t, client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return cm
}

// kept returns the record of a node and its ConfigMap.
func (c *cluster) kept(t *testing.T, node string) (*record.Record, *corev1.ConfigMap) {
	t.Helper()
	cm := c.stored(t, node)
	require.NotNil(t, cm)
	r, err := record.Parse(cm)
	require.NoError(t, err)
	require.False(t, r.Floor, "the record of node %s is removed", node)
	return r, cm
}

// assertForgotten checks that a node's record is a floor.
func (c *cluster) assertForgotten(t *testing.T, node string) {
	t.Helper()
	cm := c.stored(t, node)
	require.NotNil(t, cm)
	r, err := record.Parse(cm)
	require.NoError(t, err)
	assert.True(t, r.Floor, "the record of node %s is there", node)
	assert.Empty(t, cm.Data)
}
