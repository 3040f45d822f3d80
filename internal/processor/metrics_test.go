package processor_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/metrics"
)

// waitForMetrics waits until the metrics have these values.
func waitForMetrics(t *testing.T, from prometheus.Gatherer, want metrics.Samples) {
	t.Helper()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		got, err := metrics.Gather(from)
		if !assert.NoError(ct, err) {
			return
		}
		for name, value := range want {
			assert.Contains(ct, got, name)
			assert.InDelta(ct, value, got[name], 0, name)
		}
	}, patience, tick)
}

// value returns the current value of a metric.
func value(t *testing.T, from prometheus.Gatherer, name string) float64 {
	t.Helper()
	got, err := metrics.Gather(from)
	require.NoError(t, err)
	require.Contains(t, got, name)
	return got[name]
}

func TestMetricsCountTheLifeOfANode(t *testing.T) {
	t.Parallel()
	c, registry := newCluster(t), prometheus.NewRegistry()
	c.process(t, setup{metrics: registry})
	waitForMetrics(t, registry, metrics.Samples{"nodekeeper_records": 0, "nodekeeper_restore_duration_seconds_count": 0})
	n := c.addNode(t, c.name("node"), set{"rack": "r1"})
	added := seen(txn.Added, n)
	c.put(t, added)
	c.waitApplied(t, n.Name)
	waitForMetrics(t, registry, metrics.Samples{"nodekeeper_records": 1})
	c.put(t, added) // late, by another watcher
	c.waitApplied(t, n.Name)
	c.edit(t.Context(), t, n, func(n *corev1.Node) { n.Labels["rack"] = "r2" })
	c.put(t, seen(txn.Updated, n))
	c.waitApplied(t, n.Name) // otherwise one save of both may be counted
	c.deleteNode(t.Context(), t, n)
	c.put(t, seen(txn.Deleted, n))
	c.waitApplied(t, n.Name)
	c.put(t, seen(txn.Added, c.addNode(t, n.Name, nil)))
	c.waitApplied(t, n.Name)

	waitForMetrics(t, registry, metrics.Samples{
		`nodekeeper_transactions_applied_total{action="saved",type="added"}`:    1,
		`nodekeeper_transactions_applied_total{action="dropped",type="added"}`:  1,
		`nodekeeper_transactions_applied_total{action="restored",type="added"}`: 1,
		`nodekeeper_transactions_applied_total{action="saved",type="updated"}`:  1,
		`nodekeeper_transactions_applied_total{action="saved",type="deleted"}`:  1,
		"nodekeeper_restore_duration_seconds_count":                             1,
		"nodekeeper_records":                                1,
		"nodekeeper_unreadable_records":                     0,
		`nodekeeper_transactions_pending{type="added"}`:     0,
		"nodekeeper_oldest_pending_transaction_age_seconds": 0,
	})
	assert.Positive(t, value(t, registry, "nodekeeper_restore_duration_seconds_sum"))
	assert.Less(t, value(t, registry, "nodekeeper_restore_duration_seconds_sum"), patience.Seconds())
	assert.GreaterOrEqual(t, value(t, registry, "nodekeeper_lock_wait_seconds_count"), 4.0)
}

func TestMetricsCountStuckWork(t *testing.T) {
	t.Parallel()
	c, registry := newCluster(t), prometheus.NewRegistry()
	node := c.name("node")
	nonsense := record.Record{Node: node, Revision: revision.Of("nonsense")}.ConfigMap(c.records)
	require.NoError(t, c.Create(t.Context(), nonsense))
	c.put(t, event(txn.Updated, node, "a", "8", set{"rack": "r1"}), event(txn.Deleted, node, "a", "9", set{"rack": "r1"}))
	c.process(t, setup{metrics: registry})
	waitForMetrics(t, registry, metrics.Samples{
		"nodekeeper_unreadable_records":                   1,
		"nodekeeper_records":                              0,
		`nodekeeper_transactions_pending{type="added"}`:   0,
		`nodekeeper_transactions_pending{type="updated"}`: 1,
		`nodekeeper_transactions_pending{type="deleted"}`: 1,
	})
	const age = "nodekeeper_oldest_pending_transaction_age_seconds"
	before := value(t, registry, age)
	require.Eventually(t, func() bool { return value(t, registry, age) > max(before, 1) }, patience, tick, "it grows old")

	require.NoError(t, c.Delete(t.Context(), nonsense))
	c.waitApplied(t, node)
	waitForMetrics(t, registry, metrics.Samples{
		"nodekeeper_unreadable_records": 0, "nodekeeper_records": 1, `nodekeeper_transactions_pending{type="deleted"}`: 0, age: 0,
	})
}

func TestMetricsCountConflicts(t *testing.T) {
	t.Parallel()
	c, registry := newCluster(t), prometheus.NewRegistry()
	n, added := c.returned(t, set{"new": "n"}, lastLife)
	c.process(t, setup{metrics: registry, faults: []faults.Fault{
		&faults.Conflict{Calls: faults.Calls{Verb: faults.Patch, Kind: "Node", Name: n.Name, Times: 4}}, // each attempt is two patches
		&faults.Conflict{Calls: faults.Calls{Verb: faults.Update, Kind: "ConfigMap", Name: n.Name, Times: 1}},
	}})
	c.put(t, added)
	c.waitApplied(t, n.Name)
	waitForMetrics(t, registry, metrics.Samples{
		`nodekeeper_write_conflicts_total{object="node"}`:   2,
		`nodekeeper_write_conflicts_total{object="record"}`: 1,
	})
}

func TestMetricsCountRefusedRestores(t *testing.T) {
	t.Parallel()
	c, registry := newCluster(t), prometheus.NewRegistry()
	n, added := c.returned(t, set{"new": "n"}, lastLife)
	stop := c.refuseRestores(t, n.Name)
	c.put(t, added)
	c.process(t, setup{metrics: registry})
	require.Eventually(t, func() bool { return value(t, registry, "nodekeeper_restores_refused_total") > 1 }, patience, tick)
	assert.Zero(t, value(t, registry, "nodekeeper_restore_duration_seconds_count"))
	stop()
	c.waitApplied(t, n.Name)
	waitForMetrics(t, registry, metrics.Samples{"nodekeeper_restore_duration_seconds_count": 1})
}

func TestMetricsCountHeldLocks(t *testing.T) {
	t.Parallel()
	c, registry := newCluster(t), prometheus.NewRegistry()
	node, now := c.name("node"), metav1.NewMicroTime(time.Now())
	require.NoError(t, c.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.transactions, Name: node},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("dead"), LeaseDurationSeconds: new(int32(5)), AcquireTime: &now, RenewTime: &now},
	}))
	c.process(t, setup{metrics: registry})
	c.put(t, event(txn.Updated, node, "a", "8", set{"rack": "r1"}))
	c.waitApplied(t, node)
	assert.GreaterOrEqual(t, value(t, registry, "nodekeeper_lock_contentions_total"), 2.0)
	assert.GreaterOrEqual(t, value(t, registry, "nodekeeper_lock_wait_seconds_sum"), 2.5, "most of the five seconds, less the start of the processor")
}

func TestMetricsCountWaitingDeletions(t *testing.T) {
	c, registry := newCluster(t), prometheus.NewRegistry()
	c.process(t, setup{protects: true, metrics: registry})
	n := c.protected(t, c.name("node"), set{"rack": "r1"})
	nonsense := record.Record{Node: n.Name, Revision: revision.Of("nonsense")}.ConfigMap(c.records)
	require.NoError(t, c.Create(t.Context(), nonsense))
	waitForMetrics(t, registry, metrics.Samples{"nodekeeper_deletions_waiting": 0})
	c.delete(t, n.Name)
	waitForMetrics(t, registry, metrics.Samples{"nodekeeper_deletions_waiting": 1})
	require.NoError(t, c.Delete(t.Context(), nonsense))
	c.waitGone(t, n.Name)
	waitForMetrics(t, registry, metrics.Samples{"nodekeeper_deletions_waiting": 0})
}

func TestMetricsDoNotCountFloors(t *testing.T) {
	t.Parallel()
	c, registry := newCluster(t), prometheus.NewRegistry()
	saved := record.Record{Node: c.name("saved"), Revision: revision.MustParse("8")}
	forgotten := record.Record{Node: c.name("forgotten"), Revision: revision.MustParse("9"), Floor: true}
	for _, r := range []record.Record{saved, forgotten} {
		require.NoError(t, c.Create(t.Context(), r.ConfigMap(c.records)))
	}
	c.process(t, setup{metrics: registry})
	waitForMetrics(t, registry, metrics.Samples{"nodekeeper_records": 1, "nodekeeper_unreadable_records": 0})
}

func TestMetricsOfNoNodeAreLeft(t *testing.T) {
	t.Parallel()
	c, registry := newCluster(t), prometheus.NewRegistry()
	c.process(t, setup{metrics: registry})
	name := c.name("node")
	waitForMetrics(t, registry, metrics.Samples{"nodekeeper_records": 0})
	series := func() []string {
		all, err := metrics.Gather(registry)
		require.NoError(t, err)
		return slices.Sorted(maps.Keys(all))
	}
	before := series()
	n := c.addNode(t, name, set{"rack": "r1"})
	c.put(t, seen(txn.Added, n))
	c.waitApplied(t, name)
	assert.Equal(t, before, series(), "a node adds no series")
	assert.NotContains(t, strings.Join(before, " "), name)
}

// unsynced is a cache that never syncs.
type unsynced struct{ client.Reader }

func (unsynced) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestMetricsOmitUnknownValues(t *testing.T) {
	t.Parallel()
	c, registry := newCluster(t), prometheus.NewRegistry()
	c.process(t, setup{metrics: registry, cache: func(r client.Reader) client.Reader { return unsynced{r} }})
	got, err := metrics.Gather(registry)
	require.NoError(t, err)
	assert.NotContains(t, got, "nodekeeper_records", "0 would be wrong")
	assert.Contains(t, got, `nodekeeper_transactions_applied_total{action="saved",type="added"}`)
}
