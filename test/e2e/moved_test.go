package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
)

// TestRecordsMoveToOtherNamespaces moves the records as docs/how-to/install-with-helm.md does: no
// program runs while they are copied. One node is away, one returns meanwhile, and one is edited
// meanwhile.
func TestRecordsMoveToOtherNamespaces(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.watcher(), e.processor()
	away, returned, edited := e.name("away"), e.name("returned"), e.name("edited")
	for _, name := range []string{away, returned, edited} {
		e.create(name, labelSet{"rack": "r1"})
		e.saved(name, labelSet{"rack": "r1"})
	}
	for _, name := range []string{away, returned} {
		uid := e.node(t, name).UID
		e.delete(name)
		e.recorded(uid, txn.Deleted)
	}
	e.stop(w)
	e.eventually(func(c *assert.CollectT) { assert.Empty(c, e.queued(c)) }, "nothing is pending")
	e.stop(p)
	var saved corev1.ConfigMapList
	require.NoError(t, e.client.List(t.Context(), &saved, client.InNamespace(e.metadata), client.MatchingLabels{"app.kubernetes.io/managed-by": "nodekeeper"}))
	for _, former := range []*string{&e.metadata, &e.transactions} {
		require.NoError(t, e.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: *former}}))
		*former += "-new"
		require.NoError(t, e.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: *former}}))
	}

	for _, cm := range saved.Items {
		moved := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: cm.Name, Labels: cm.Labels, Annotations: cm.Annotations}, Data: cm.Data}
		require.NoError(t, e.client.Create(t.Context(), moved))
	}
	e.create(returned, labelSet{})
	e.set(edited, "rack", "r2")
	e.processor()
	e.watcher()
	e.restored(returned, labelSet{"rack": "r1"})
	e.create(away, labelSet{})
	e.restored(away, labelSet{"rack": "r1"})
	e.saved(edited, labelSet{"rack": "r2"})
	own, _ := e.labels(t, edited)
	assert.Equal(t, labelSet{"rack": "r2"}, own, "no record has replaced what people have set")
}
