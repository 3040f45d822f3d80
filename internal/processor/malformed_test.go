package processor_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/metrics"
)

// malformedOnes returns ConfigMaps that cannot be read as transactions, by the defect of each.
func (c *cluster) malformedOnes(node string) map[string]*corev1.ConfigMap {
	broken := func(version string, breakIt func(*corev1.ConfigMap)) *corev1.ConfigMap {
		cm := event(txn.Updated, node, "a", version, set{"rack": "r9"}).ConfigMap(c.transactions)
		breakIt(cm)
		return cm
	}
	return map[string]*corev1.ConfigMap{
		"its name is not":            broken("1", func(cm *corev1.ConfigMap) { cm.Name = "notes" }),
		"does not begin with":        broken("2", func(cm *corev1.ConfigMap) { cm.Name = txn.NodeHash("another") + ".2" }),
		`data.type is "moved"`:       broken("3", func(cm *corev1.ConfigMap) { cm.Data[labels.TypeKey] = "moved" }),
		"uid is missing":             broken("4", func(cm *corev1.ConfigMap) { delete(cm.Annotations, "nodekeeper.dev/uid") }),
		"a---SLASH---b---SLASH---c":  broken("5", func(cm *corev1.ConfigMap) { cm.Data["a---SLASH---b---SLASH---c"] = "x" }),
		"binaryData":                 broken("6", func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"x": nil} }),
		"data.type is \"\", not add": {ObjectMeta: broken("7", func(*corev1.ConfigMap) {}).ObjectMeta},
	}
}

func TestMalformedTransactionsAreMarkedAndKeptAndBlockNobody(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("node")
	malformed := c.malformedOnes(node)
	for reason, cm := range malformed {
		require.NoError(t, c.Create(t.Context(), cm), reason)
	}
	rootCA := &corev1.ConfigMap{}
	rootCA.Namespace, rootCA.Name = c.transactions, record.RootCAName
	require.NoError(t, c.Create(t.Context(), rootCA))
	c.put(t, event(txn.Updated, node, "a", "8", set{"rack": "r8"}))
	registry := prometheus.NewRegistry()
	c.process(t, setup{metrics: registry})

	require.Eventually(t, func() bool { return c.record(t, node) != nil }, patience, tick)
	assert.Equal(t, set{"rack": "r8"}, c.record(t, node).Labels)
	for reason, cm := range malformed {
		assert.Contains(t, c.waitEvent(t, c.transactions, cm.Name, "TransactionMalformed"), reason)
		after := &corev1.ConfigMap{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cm), after))
		assert.Equal(t, "true", after.Labels[txn.MalformedLabel], reason)
		assert.Equal(t, cm.Data, after.Data)
	}
	after := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(rootCA), after))
	assert.Equal(t, rootCA.ResourceVersion, after.ResourceVersion, "foreign ConfigMaps are left alone")
	waitForMetrics(t, registry, metrics.Samples{"nodekeeper_malformed_transactions": float64(len(malformed))})
}

func TestMalformedTransactionThatIsMendedIsApplied(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("node")
	cm := event(txn.Updated, node, "a", "8", set{"rack": "r8"}).ConfigMap(c.transactions)
	cm.Immutable = nil
	cm.Data[labels.TypeKey] = "moved"
	require.NoError(t, c.Create(t.Context(), cm))
	c.process(t, setup{})
	c.waitEvent(t, c.transactions, cm.Name, "TransactionMalformed")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
	cm.Data[labels.TypeKey] = "updated"
	require.NoError(t, c.Update(t.Context(), cm))
	c.waitApplied(t, node)
	assert.Equal(t, set{"rack": "r8"}, c.record(t, node).Labels)
}

func TestMarkingIsTriedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{
		"outage":                  &faults.Outage{Calls: faults.Calls{Verb: faults.Patch, Times: 3}},
		"answer to the mark lost": &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Patch, Times: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			cm := &corev1.ConfigMap{}
			cm.Namespace, cm.Name, cm.Labels = c.transactions, "notes", set{txn.TypeLabel: "updated"}
			require.NoError(t, c.Create(t.Context(), cm))
			c.process(t, setup{faults: []faults.Fault{f}})
			require.EventuallyWithT(t, func(ct *assert.CollectT) {
				assert.NoError(ct, c.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
				assert.Contains(ct, cm.Labels, txn.MalformedLabel)
			}, patience, tick)
			assert.Positive(t, f.Hits())
		})
	}
}

func TestMalformedTransactionThatIsMendedJustThenIsNotMarked(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("node")
	cm := event(txn.Updated, node, "a", "8", set{"rack": "r8"}).ConfigMap(c.transactions)
	cm.Immutable = nil
	cm.Data[labels.TypeKey] = "moved"
	require.NoError(t, c.Create(t.Context(), cm))
	mended := &faults.Race{Calls: faults.Calls{Verb: faults.Patch, Kind: "ConfigMap"}, First: func(ctx context.Context) {
		cm.Data[labels.TypeKey] = "updated"
		assert.NoError(t, c.Update(ctx, cm))
	}}
	marks := &faults.Log{Calls: faults.Calls{Verb: faults.Patch, Kind: "ConfigMap"}}
	c.process(t, setup{faults: []faults.Fault{marks, mended}})
	c.waitApplied(t, node)
	assert.Equal(t, set{"rack": "r8"}, c.record(t, node).Labels)
	if entries := marks.Entries(); assert.Len(t, entries, 1) {
		assert.True(t, apierrors.IsConflict(entries[0].Err), "got %v", entries[0].Err)
	}
}
