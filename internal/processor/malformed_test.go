package processor_test

import (
	"context"
	"errors"
	"slices"
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

// quarantined waits until a malformed ConfigMap is quarantined, and returns what is kept: the
// ConfigMap itself, or a copy if a transaction can have its name.
func (c *cluster) quarantined(t *testing.T, cm *corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	var kept *corev1.ConfigMap
	_, _, isTaken := txn.SplitName(cm.Name)
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		all := &corev1.ConfigMapList{}
		require.NoError(ct, c.List(t.Context(), all, client.InNamespace(c.transactions), client.MatchingLabels{txn.MalformedLabel: "true"}))
		at := slices.IndexFunc(all.Items, func(other corev1.ConfigMap) bool {
			return isTaken && other.Annotations[txn.MalformedNameAnnotation] == cm.Name || !isTaken && other.UID == cm.UID
		})
		if assert.GreaterOrEqual(ct, at, 0, cm.Name) {
			kept = &all.Items[at]
		}
		if isTaken {
			assert.True(ct, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(cm), &corev1.ConfigMap{})), "its name is free")
		}
	}, patience, tick)
	return kept
}

func TestMalformedTransactionsAreQuarantinedAndBlockNoNode(t *testing.T) {
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
		kept := c.quarantined(t, cm)
		assert.Contains(t, c.waitEvent(t, c.transactions, kept.Name, "TransactionMalformed"), reason)
		assert.Equal(t, cm.Data, kept.Data)
		assert.Equal(t, cm.BinaryData, kept.BinaryData)
		assert.Equal(t, cm.Immutable, kept.Immutable)
		assert.Equal(t, cm.Annotations["nodekeeper.dev/node"], kept.Annotations["nodekeeper.dev/node"])
	}
	after := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(rootCA), after))
	assert.Equal(t, rootCA.ResourceVersion, after.ResourceVersion, "foreign ConfigMaps are left alone")
	waitForMetrics(t, registry, metrics.Samples{"nodekeeper_malformed_transactions": float64(len(malformed))})
}

// A former release has marked malformed transactions and kept their names.
func TestMalformedTransactionThatIsMarkedIsMoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	cm := event(txn.Updated, c.name("node"), "a", "8", set{"rack": "r8"}).ConfigMap(c.transactions)
	cm.Data[labels.TypeKey] = "moved"
	cm.Labels[txn.MalformedLabel] = "true"
	require.NoError(t, c.Create(t.Context(), cm))
	c.process(t, setup{})
	assert.Equal(t, cm.Data, c.quarantined(t, cm).Data)
}

func TestQuarantineIsTriedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	calls := func(verb faults.Verb, times int) faults.Calls {
		return faults.Calls{Verb: verb, Kind: "ConfigMap", Times: times}
	}
	for name, f := range map[string]fault{
		"outage before the copy":      &faults.Outage{Calls: calls(faults.Create, 3)},
		"answer to the copy lost":     &faults.LostAnswer{Calls: calls(faults.Create, 1)},
		"outage before the deletion":  &faults.Outage{Calls: calls(faults.Delete, 3)},
		"answer to the deletion lost": &faults.LostAnswer{Calls: calls(faults.Delete, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			cm := &corev1.ConfigMap{}
			cm.Namespace, cm.Name, cm.Labels = c.transactions, txn.NodeHash("node")+".8", set{txn.TypeLabel: "updated"}
			require.NoError(t, c.Create(t.Context(), cm))
			c.process(t, setup{faults: []faults.Fault{f}})
			c.quarantined(t, cm)
			assert.Positive(t, f.Hits())
			all := &corev1.ConfigMapList{}
			require.NoError(t, c.List(t.Context(), all, client.InNamespace(c.transactions)))
			assert.Len(t, all.Items, 1, "there is one copy")
		})
	}
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

func TestMalformedTransactionThatIsMendedJustThenIsApplied(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("node")
	cm := event(txn.Updated, node, "a", "8", set{"rack": "r8"}).ConfigMap(c.transactions)
	cm.Immutable = nil
	cm.Data[labels.TypeKey] = "moved"
	require.NoError(t, c.Create(t.Context(), cm))
	corrected := &faults.Race{Calls: faults.Calls{Verb: faults.Delete, Name: cm.Name, Times: 1}, First: func(ctx context.Context) {
		cm.Data[labels.TypeKey] = "updated"
		assert.NoError(t, c.Update(ctx, cm))
	}}
	deletions := &faults.Log{Calls: faults.Calls{Verb: faults.Delete, Name: cm.Name, Times: 1}}
	c.process(t, setup{faults: []faults.Fault{deletions, corrected}})
	require.Eventually(t, func() bool { return c.record(t, node) != nil }, patience, tick)
	assert.Equal(t, set{"rack": "r8"}, c.record(t, node).Labels)
	if entries := deletions.Entries(); assert.NotEmpty(t, entries) {
		assert.True(t, apierrors.IsConflict(entries[0].Err), "got %v", entries[0].Err)
	}
}

// TestMalformedTransactionThatStaysIsReported has an object that is not gone when it is deleted,
// and one whose deletion is refused.
func TestMalformedTransactionThatStaysIsReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	finalized, refused := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	finalized.Name, finalized.Finalizers = txn.NodeHash("node")+".8", []string{"example.com/keep"}
	refused.Name = txn.NodeHash("node") + ".9"
	for _, cm := range []*corev1.ConfigMap{finalized, refused} {
		cm.Namespace, cm.Immutable = c.transactions, new(true)
		require.NoError(t, c.Create(t.Context(), cm))
	}
	c.process(t, setup{faults: []faults.Fault{forbidden{refused.Name}}})
	for cm, reason := range map[*corev1.ConfigMap]string{finalized: "example.com/keep", refused: "a policy"} {
		note := c.waitEvent(t, c.transactions, cm.Name, "TransactionMalformed")
		assert.Contains(t, note, "delete this ConfigMap by hand")
		assert.Contains(t, note, reason)
	}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(finalized), finalized))
	finalized.Finalizers = nil
	require.NoError(t, c.Update(t.Context(), finalized))
	c.quarantined(t, finalized)
}

// forbidden is an admission policy that refuses the deletion of an object.
type forbidden struct{ name string }

func (f forbidden) Do(ctx context.Context, call faults.Call, next func(context.Context) error) error {
	if call.Verb != faults.Delete || call.Name != f.name {
		return next(ctx)
	}
	return apierrors.NewForbidden(corev1.Resource("configmaps"), call.Name, errors.New("a policy"))
}
