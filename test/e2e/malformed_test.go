package e2e_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/ports"
)

// freeAddress returns an unused loopback address.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := ports.Address()
	require.NoError(t, err)
	return address
}

// malformed is a ConfigMap that is not a valid transaction, with the expected complaint.
type malformed struct {
	cm  *corev1.ConfigMap
	why string
}

// malformedOf creates one ConfigMap of each kind, mutable and immutable. They belong to the node as
// far as it can be determined.
func (e *env) malformedOf(node string) []malformed {
	like := func(rv string, spoil func(*corev1.ConfigMap)) *corev1.ConfigMap {
		t := txn.Transaction{
			Type: txn.Deleted, Node: node, UID: "a-uid", Revision: revision.Of(rv), Labels: labelSet{"rack": "wrong"}, ObservedAt: time.Now(),
		}
		cm := t.ConfigMap(e.transactions)
		spoil(cm)
		return cm
	}
	badType := func(cm *corev1.ConfigMap) { cm.Data["type"] = "moved" }
	badKey := func(cm *corev1.ConfigMap) { cm.Data["---OTHER---x"] = "y" }
	return []malformed{
		{like("1", func(cm *corev1.ConfigMap) { cm.Name, cm.Immutable = "notes", nil }), "its name is not"},
		{like("1", func(cm *corev1.ConfigMap) { cm.Name = txn.NodeHash(node) + ".latest" }), "its name is not"},
		{like("2", func(cm *corev1.ConfigMap) { badType(cm); cm.Immutable = nil }), `"moved"`},
		{like("3", badType), `"moved"`},
		{like("4", func(cm *corev1.ConfigMap) { badKey(cm); cm.Immutable = nil }), `"---OTHER---x"`},
		{like("5", badKey), `"---OTHER---x"`},
	}
}

// quarantined waits until a malformed ConfigMap is quarantined, and returns what is kept: the
// ConfigMap itself, or a copy if a transaction can have its name.
func (e *env) quarantined(cm *corev1.ConfigMap) *corev1.ConfigMap {
	e.t.Helper()
	var kept *corev1.ConfigMap
	_, _, isTaken := txn.SplitName(cm.Name)
	e.eventually(func(c *assert.CollectT) {
		all := e.configMaps(c, e.transactions)
		at := slices.IndexFunc(all, func(other corev1.ConfigMap) bool {
			return isTaken && other.Annotations[txn.MalformedNameAnnotation] == cm.Name || !isTaken && other.UID == cm.UID
		})
		if assert.GreaterOrEqual(c, at, 0) {
			kept = &all[at]
			assert.Equal(c, "true", kept.Labels[txn.MalformedLabel])
		}
		isThere := slices.ContainsFunc(all, func(other corev1.ConfigMap) bool { return other.UID == cm.UID })
		assert.Equal(c, !isTaken, isThere, "the name of a transaction is free")
	}, "%s is quarantined", cm.Name)
	return kept
}

func TestMalformedTransactionsAreQuarantinedAndBlockNoNode(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	address := freeAddress(t)
	e.processor("--metrics-bind-address=" + address)
	node, other := e.name("node"), e.name("other")
	bad := e.malformedOf(node)
	for _, m := range bad {
		require.NoError(t, e.client.Create(t.Context(), m.cm))
	}
	e.ensureRootCA()

	e.watcher()
	want := labelSet{"rack": "r7"}
	for _, name := range []string{node, other} {
		e.create(name, want)
		e.delete(name)
		e.create(name, nil)
	}
	for _, name := range []string{node, other} {
		e.restored(name, want)
	}
	e.settle()

	for _, m := range bad {
		kept := e.quarantined(m.cm)
		assert.Contains(t, e.warned(kept.UID, "TransactionMalformed"), m.why)
		assert.Equal(t, m.cm.Data, kept.Data)
	}
	e.eventually(func(c *assert.CollectT) {
		assert.InDelta(c, len(bad), e.metric(c, address, "nodekeeper_malformed_transactions"), 0)
	}, "the metric counts them")
	rootCA := &corev1.ConfigMap{}
	require.NoError(t, e.client.Get(t.Context(), types.NamespacedName{Namespace: e.transactions, Name: "kube-root-ca.crt"}, rootCA))
	assert.NotContains(t, rootCA.Labels, "nodekeeper.dev/malformed")
}

// kube-state-rs uses the same namespace and names, so what it has left may have the name of the first
// transaction of a live node.
func TestLeftTransactionOfKubeStateRSHoldsUpNoNode(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.stop(e.processor()) // it has created the namespaces
	node := e.name("node")
	live := e.create(node, labelSet{"rack": "r7"})
	left := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.transactions, Name: txn.NodeHash(node) + "." + live.ResourceVersion},
		Data:       map[string]string{"node_name": node, "transaction_type": "added", "rack": "r1"},
	}
	require.NoError(t, e.client.Create(t.Context(), left))
	e.watcher()
	e.processor()
	e.quarantined(left)
	e.set(node, "team", "blue")
	want := labelSet{"rack": "r7", "team": "blue"}
	e.saved(node, want)
	e.delete(node)
	e.create(node, nil)
	e.restored(node, want)
	e.settle()
}

// ensureRootCA creates the ConfigMap that a cluster with controllers has in every namespace.
func (e *env) ensureRootCA() {
	e.t.Helper()
	rootCA := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.transactions, Name: "kube-root-ca.crt"},
		Data:       map[string]string{"ca.crt": "a certificate"},
	}
	err := e.client.Create(e.t.Context(), rootCA)
	if !apierrors.IsAlreadyExists(err) { // AlreadyExists: the controller was faster
		require.NoError(e.t, err)
	}
}
