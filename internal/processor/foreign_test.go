package processor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/metrics"
)

// foreign creates objects of other products in a namespace.
func (c *cluster) foreign(t *testing.T, namespace string) []client.Object {
	t.Helper()
	var all []client.Object
	for _, name := range []string{record.RootCAName, "istio-ca-root-cert", "openshift-service-ca.crt"} {
		all = append(all, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: set{"istio.io/config": "true"}},
			Data:       set{"root-cert.pem": "-----BEGIN CERTIFICATE-----\n"},
		})
	}
	all = append(all, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "leader-election"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("dead"), LeaseDurationSeconds: new(int32(1)), RenewTime: new(metav1.NewMicroTime(time.Now().Add(-24 * time.Hour))),
		},
	})
	for _, obj := range all {
		require.NoError(t, c.Create(t.Context(), obj))
	}
	return all
}

// B6: an object in one of the two namespaces belongs to nodekeeper only if its name or its metadata
// shows it.
func TestObjectsOfOtherProductsAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	all := append(c.foreign(t, c.transactions), c.foreign(t, c.records)...)
	before := make([]string, len(all))
	for i, obj := range all {
		before[i] = obj.GetResourceVersion()
	}
	node := c.name("node")
	registry := prometheus.NewRegistry()
	c.process(t, setup{metrics: registry})
	c.put(t, event(txn.Updated, node, "a", "8", set{"rack": "r8"}))
	c.waitApplied(t, node)

	waitForMetrics(t, registry, metrics.Samples{
		"nodekeeper_records":                1,
		"nodekeeper_unreadable_records":     0,
		"nodekeeper_malformed_transactions": 0,
	})
	// A malformed transaction is found after everything that existed before it.
	malformed := event(txn.Updated, node, "a", "9", set{}).ConfigMap(c.transactions)
	delete(malformed.Data, "type")
	require.NoError(t, c.Create(t.Context(), malformed))
	kept := "malformed." + string(malformed.UID) + "." + malformed.ResourceVersion
	c.waitEvent(t, c.transactions, kept, "TransactionMalformed")
	for i, obj := range all {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
		assert.Equal(t, before[i], obj.GetResourceVersion(), "%s/%s", obj.GetNamespace(), obj.GetName())
	}
	for _, namespace := range []string{c.transactions, c.records} {
		var list eventsv1.EventList
		require.NoError(t, c.List(t.Context(), &list, client.InNamespace(namespace)))
		for i := range list.Items {
			assert.Equal(t, kept, list.Items[i].Regarding.Name)
		}
	}
}

// A node may have the name of a ConfigMap that exists in every namespace. It cannot have a record,
// and users are informed.
func TestNodeWithTheNameOfAForeignConfigMapWaitsAndBacksOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("trust-bundle")
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.records, Name: node}, Data: set{"ca.pem": "-----"}}
	require.NoError(t, c.Create(t.Context(), foreign))
	transaction := event(txn.Updated, node, "a", "8", set{"rack": "r8"})
	c.put(t, transaction)
	reads := &faults.Log{Calls: faults.Calls{Verb: faults.Get, Kind: "ConfigMap", Namespace: c.records, Name: node}}
	began := time.Now()
	c.process(t, setup{faults: []faults.Fault{reads}})

	note := c.waitEvent(t, c.records, node, "RecordUnreadable")
	assert.Contains(t, note, "Node "+node+" waits for its labels until this record is corrected or deleted")
	other := c.name("other")
	c.put(t, event(txn.Updated, other, "a", "9", set{"rack": "r9"}))
	c.waitApplied(t, other)
	require.Eventually(t, func() bool { return reads.Hits() >= 4 }, patience, tick)
	// The backoff starts at 50 ms and doubles: n attempts take about 50 ms times 2 to the power of
	// n-1.
	attempts, elapsed := reads.Hits(), time.Since(began)
	assert.LessOrEqual(t, 25*time.Millisecond<<(attempts-2), elapsed, "%d attempts in %s", attempts, elapsed)
	left, err := c.queued(t.Context(), node)
	require.NoError(t, err)
	assert.Equal(t, []string{transaction.Name()}, left)
	after := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(foreign), after))
	assert.Equal(t, foreign.ResourceVersion, after.ResourceVersion)

	require.NoError(t, c.Delete(t.Context(), foreign))
	c.waitApplied(t, node)
	assert.Equal(t, set{"rack": "r8"}, c.record(t, node).Labels)
}

// B7: the labels fit in a transaction with a byte to spare, but not in a record, in which a longer
// resourceVersion replaces the type.
func TestTransactionThatFitsAndItsRecordDoesNot(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.addNode(t, c.name("node"), nil)
	huge := event(txn.Updated, n.Name, n.UID, "1000000001", set{})
	for left := txn.MaxDataBytes - len("updated"); left > 0; left -= 63 {
		huge.Labels[fmt.Sprintf("k%d", len(huge.Labels))] = strings.Repeat("v", min(63, left))
	}
	require.Equal(t, txn.MaxDataBytes, txn.DataBytes(huge.ConfigMap("ns").Data))
	before := event(txn.Updated, n.Name, n.UID, "1000000000", set{"rack": "r1"})
	c.put(t, before, huge)
	c.process(t, setup{})
	c.waitApplied(t, n.Name)
	assert.Equal(t, set{"rack": "r1"}, c.record(t, n.Name).Labels)
	assert.Contains(t, c.waitEvent(t, metav1.NamespaceDefault, n.Name, "LabelsTooLarge"), "The labels of this node are not kept")

	c.put(t, event(txn.Deleted, n.Name, n.UID, "1000000002", set{"rack": "r2"}))
	c.waitApplied(t, n.Name)
	assert.Equal(t, set{"rack": "r2"}, c.record(t, n.Name).Labels)
}
