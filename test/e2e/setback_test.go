package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// etcd is restored with higher revisions than before, and kubelets report the status of their Nodes
// before a watcher is connected again. So no Node that it sees is older than before.
func TestNodesThatHaveChangedSinceEtcdWasRestored(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]func(e *env, node string){
		"an edit before the restore of its labels": func(e *env, node string) {
			e.refuseTransactions(node) // so that the watcher cannot store it
			e.editAs("kubectl-label", node, labelSet{"team": "green"})
		},
		"another incarnation": func(e *env, node string) {
			p := e.processor()
			e.restored(node, labelSet{"zone": "a", "team": "blue", "rack": "r7"})
			e.delete(node)
			e.createAs("kubelet", node, labelSet{"zone": "b"})
			e.restored(node, labelSet{"zone": "b", "team": "blue", "rack": "r7"})
			e.editAs("kubectl-label", node, labelSet{"team": "green", "lost": "x"})
			e.saved(node, labelSet{"zone": "b", "team": "green", "lost": "x", "rack": "r7"})
			e.drained(node)
			e.stop(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.needsProxy()
			proxy := e.newProxy()
			w, p := e.start("watcher", proxy.kubeconfig(e)), e.processor()
			e.ready(w)
			node := e.name("node")
			e.createAs("kubelet", node, labelSet{"zone": "a"})
			e.editAs("kubectl-label", node, labelSet{"team": "blue", "rack": "r7"})
			e.saved(node, labelSet{"zone": "a", "team": "blue", "rack": "r7"})
			e.drained(node)
			e.stop(p)
			e.delete(node)
			n := e.createAs("kubelet", node, labelSet{"zone": "a"})
			e.recorded(n.UID, "added")
			renewed := e.renewed(t, w)
			backup := e.backUp()
			e.eventually(func(c *assert.CollectT) { assert.NoError(c, e.trySet(node, "probe")) }, "the API server is back")

			lost(e, node)
			e.eventually(func(c *assert.CollectT) {
				assert.NotEmpty(c, append(complaints(w, "configmaps"), e.transactionTypes(e.node(c, node).UID)...))
			}, "the watcher has seen it")
			e.eventually(func(c *assert.CollectT) { assert.True(c, e.renewed(c, w).After(renewed)) }, "the watcher has renewed its Lease since")
			proxy.setCut(true)
			e.restore(backup, true)
			heartbeat := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`))
			live := &corev1.Node{ObjectMeta: e.node(t, node).ObjectMeta}
			require.NoError(t, e.client.Status().Patch(t.Context(), live, heartbeat, client.FieldOwner("kubelet")))
			require.Equal(t, n.UID, live.UID)
			proxy.setCut(false)

			e.noticesTheRewind(w)
			e.watcher()
			e.processor()
			want := labelSet{"zone": "a", "team": "blue", "rack": "r7"}
			e.restored(node, want)
			e.drained(node)
			e.settle()
			e.hasRestored(t, node, want)
			e.saved(node, want)
		})
	}
}
