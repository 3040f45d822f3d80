package processor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/processor"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

const retention = time.Hour

// start is when the sweeps of these tests begin.
var start = time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC)

// sweeper returns a processor that only sweeps.
func (c *cluster) sweeper(t *testing.T, fault ...faults.Fault) *processor.Processor {
	t.Helper()
	return c.sweeperWith(t, uncached{c.WithWatch}, retention, fault...)
}

func (c *cluster) sweeperWith(t *testing.T, cache client.Reader, retention time.Duration, fault ...faults.Fault) *processor.Processor {
	t.Helper()
	cl := faults.Client(smallPages(c.WithWatch), fault...)
	p, err := processor.New(processor.Config{
		Client: cl, Cache: cache, Locks: nodelock.New(cl, c.transactions, "sweeper"), Events: events.NewFakeRecorder(10),
		Metrics: prometheus.NewRegistry(), TransactionNamespace: c.transactions, MetadataNamespace: c.records,
		Policy: policy(t, ""), Workers: 1, Retention: retention,
	})
	require.NoError(t, err)
	return p
}

// uncached is a cache that is never behind: it asks the API server itself, which has no index.
type uncached struct{ client.Reader }

func (u uncached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.FieldSelector == nil {
		return u.Reader.List(ctx, list, o)
	}
	hash, _ := o.FieldSelector.RequiresExactMatch(txn.NodeHashIndex)
	o.FieldSelector = nil
	all := list.(*corev1.ConfigMapList)
	err := u.Reader.List(ctx, all, o)
	all.Items = slices.DeleteFunc(all.Items, func(cm corev1.ConfigMap) bool { return !slices.Contains(txn.IndexNodeHash(&cm), hash) })
	return err
}

// smallPages lets every list that is read by pages have many of them.
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

// away saves a record of a node that is away, since then if that is not "", and returns the node's name.
func (c *cluster) away(t *testing.T, name, since string) string {
	t.Helper()
	node := c.name(name)
	cm := record.Record{Node: node, Labels: set{"rack": "r7"}, Version: "9", Source: "a"}.ConfigMap(c.records)
	if since != "" {
		cm.Annotations[record.AwaySinceAnnotation] = since
	}
	require.NoError(t, c.Create(t.Context(), cm))
	return node
}

// stored returns the ConfigMap of a node's record, nil if there is none.
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

func TestRecordIsRemovedWhenItsNodeStayedAwayForTheRetentionTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "")
	p := c.sweeper(t)
	require.NoError(t, p.SweepRecordsOnce(t.Context(), start))
	assert.Equal(t, "2026-11-21T03:14:15Z", c.stored(t, node).Annotations[record.AwaySinceAnnotation])
	noted := c.stored(t, node).ResourceVersion
	require.NoError(t, p.SweepRecordsOnce(t.Context(), start.Add(retention-time.Second)))
	assert.Equal(t, noted, c.stored(t, node).ResourceVersion, "nothing is written while it waits")
	require.NoError(t, p.SweepRecordsOnce(t.Context(), start.Add(retention)))
	assert.Nil(t, c.stored(t, node))
	var locks coordinationv1.LeaseList
	require.NoError(t, c.List(t.Context(), &locks, client.InNamespace(c.transactions)))
	assert.Empty(t, locks.Items)
}

func TestRecordsOfLiveNodesAreNeverRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.sweeper(t)
	nodes := []string{}
	for i := range 5 { // more than two pages
		node := c.away(t, fmt.Sprint("node-", i), "2006-01-02T15:04:05Z")
		c.addNode(t, node, nil)
		nodes = append(nodes, node)
	}
	for range 2 {
		require.NoError(t, p.SweepRecordsOnce(t.Context(), start))
		for _, node := range nodes {
			if assert.NotNil(t, c.stored(t, node)) {
				assert.NotContains(t, c.stored(t, node).Annotations, record.AwaySinceAnnotation)
			}
		}
	}
	require.NoError(t, c.Delete(t.Context(), c.node(t, nodes[0])))
	require.NoError(t, p.SweepRecordsOnce(t.Context(), start))
	require.NoError(t, p.SweepRecordsOnce(t.Context(), start.Add(retention-time.Second)))
	assert.NotNil(t, c.stored(t, nodes[0]), "the time counts anew")
}

func TestUnreadableRecordsAreNeverRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "2006-01-02T15:04:05Z")
	cm := c.stored(t, node)
	cm.Data["rack"] = "no legal value"
	require.NoError(t, c.Update(t.Context(), cm))
	rootCA := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.records, Name: record.RootCAName, Annotations: set{record.AwaySinceAnnotation: "2006-01-02T15:04:05Z"},
	}}
	require.NoError(t, c.Create(t.Context(), rootCA))
	require.NoError(t, c.sweeper(t).SweepRecordsOnce(t.Context(), start))
	assert.Equal(t, cm.ResourceVersion, c.stored(t, node).ResourceVersion)
	assert.Equal(t, rootCA.ResourceVersion, c.stored(t, record.RootCAName).ResourceVersion)
}

func TestNoteThatIsNoTimeCountsFromNow(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "long ago")
	require.NoError(t, c.sweeper(t).SweepRecordsOnce(t.Context(), start))
	assert.Equal(t, "2026-11-21T03:14:15Z", c.stored(t, node).Annotations[record.AwaySinceAnnotation])
}

func TestExpiredRecordIsKeptIfAFreshLookFindsAReason(t *testing.T) {
	t.Parallel()
	lock := faults.Calls{Verb: faults.Create, Kind: "Lease"}
	removal := faults.Calls{Verb: faults.Delete, Kind: "ConfigMap"}
	for name, tc := range map[string]struct {
		before *faults.Calls // which call
		happen func(ctx context.Context, c *cluster, node string) error
	}{
		"the node is back": {&lock, func(ctx context.Context, c *cluster, node string) error {
			return c.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		}},
		"an event is queued": {&lock, func(ctx context.Context, c *cluster, node string) error {
			return c.Create(ctx, event(txn.Deleted, node, "a", "10", nil).ConfigMap(c.transactions))
		}},
		"a malformed event is queued": {&lock, func(ctx context.Context, c *cluster, node string) error {
			cm := event(txn.Deleted, node, "a", "10", nil).ConfigMap(c.transactions)
			cm.Data = nil
			return c.Create(ctx, cm)
		}},
		"an event without its labels is queued": {&lock, func(ctx context.Context, c *cluster, node string) error {
			cm := event(txn.Deleted, node, "a", "10", nil).ConfigMap(c.transactions)
			cm.Labels = nil
			return c.Create(ctx, cm)
		}},
		"the node is back at the last moment": {&removal, func(ctx context.Context, c *cluster, node string) error {
			return c.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		}},
		"an event is queued at the last moment": {&removal, func(ctx context.Context, c *cluster, node string) error {
			return c.Create(ctx, event(txn.Deleted, node, "a", "10", nil).ConfigMap(c.transactions))
		}},
		"the record is written": {&removal, func(ctx context.Context, c *cluster, node string) error {
			return c.Update(ctx, record.Record{Node: node, Version: "10"}.ConfigMap(c.records))
		}},
		"the record is made anew": {&removal, func(ctx context.Context, c *cluster, node string) error {
			cm := record.Record{Node: node, Version: "10"}.ConfigMap(c.records)
			return errors.Join(c.Delete(ctx, cm.DeepCopy()), c.Create(ctx, cm))
		}},
		"another works for the node": {&lock, func(ctx context.Context, c *cluster, node string) error {
			held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.transactions, Name: node}}
			held.Spec.HolderIdentity, held.Spec.LeaseDurationSeconds = new("other"), new(int32(5))
			held.Spec.RenewTime = new(metav1.NowMicro())
			return c.Create(ctx, held)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.away(t, "node", "2006-01-02T15:04:05Z")
			f := &faults.Race{
				Calls: faults.Calls{Verb: tc.before.Verb, Kind: tc.before.Kind, Times: 1},
				First: func(ctx context.Context) { assert.NoError(t, tc.happen(ctx, c, node)) },
			}
			require.NoError(t, c.sweeper(t, f).SweepRecordsOnce(t.Context(), start))
			assert.Equal(t, 1, f.Hits())
			assert.NotNil(t, c.stored(t, node))
			assert.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})))
		})
	}
}

func TestSweepOfRecordsGoesOnAfterFaults(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{
		"answer to the note lost":    lost(faults.Patch, "ConfigMap", "", 1),
		"answer to the removal lost": lost(faults.Delete, "ConfigMap", "", 1),
		"conflict of the note":       &faults.Conflict{Calls: faults.Calls{Verb: faults.Patch, Times: 1}},
		"conflict of the removal":    &faults.Conflict{Calls: faults.Calls{Verb: faults.Delete, Kind: "ConfigMap", Times: 1}},
		"outage":                     &faults.Outage{Calls: faults.Calls{Times: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.away(t, "node", "")
			p := c.sweeper(t, f)
			for i := range 10 { // an error says only that a later round is to do it
				_ = p.SweepRecordsOnce(t.Context(), start.Add(time.Duration(i)*retention))
			}
			assert.Positive(t, f.Hits())
			assert.Nil(t, c.stored(t, node))
		})
	}
}

func TestNothingIsRemovedIfTheNodesCannotBeListed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "2006-01-02T15:04:05Z")
	down := &faults.Outage{Calls: faults.Calls{Verb: faults.List, Kind: "Node"}}
	require.ErrorContains(t, c.sweeper(t, down).SweepRecordsOnce(t.Context(), start), "listing the nodes")
	assert.NotNil(t, c.stored(t, node))
}
