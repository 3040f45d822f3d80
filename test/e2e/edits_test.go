package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nodes return while programs are down, and users label them by hand before the restore.
func TestRestoreKeepsWhatUsersHaveEditedBefore(t *testing.T) {
	t.Parallel()
	for name, withWatcher := range map[string]bool{"no processor runs": true, "nothing runs": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			w, p := e.watcher(), e.processor()
			node := e.name("node")
			e.createAs("kubelet", node, labelSet{"zone": "a"})
			e.editAs("kubectl-label", node, labelSet{"team": "blue", "rack": "r7"})
			e.saved(node, labelSet{"zone": "a", "team": "blue", "rack": "r7"})
			e.eventually(func(c *assert.CollectT) { assert.Empty(c, e.queue(c, node)) }, "nothing is left to be applied")
			e.stop(p)
			if !withWatcher {
				e.stop(w)
			}
			e.delete(node)
			e.createAs("kubelet", node, labelSet{"zone": "b", "kubernetes.io/os": "linux", "kubernetes.io/hostname": node})
			e.editAs("kubectl-label", node, labelSet{"team": "green", "ticket": "4711"})
			if withWatcher {
				e.eventually(func(c *assert.CollectT) { assert.Len(c, e.queue(c, node), 3) }, "the end, the return and the edit are recorded")
			} else {
				e.watcher()
			}
			e.processor()
			want := labelSet{"zone": "b", "kubernetes.io/os": "linux", "kubernetes.io/hostname": node, "team": "green", "rack": "r7", "ticket": "4711"}
			e.restored(node, want)
			e.settle()
			e.hasRestored(t, node, want)
			e.saved(node, want)
		})
	}
}

// A backup of a record returns while the Node is live, whose labels have been restored, and edited
// since.
func TestEarlierRecordDoesNotChangeALiveNode(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"the watchers restart": true, "a label changes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			w := e.watcher()
			e.processor()
			node := e.name("node")
			e.createAs("kubelet", node, nil)
			e.editAs("kubectl-label", node, labelSet{"team": "old", "gone": "x"})
			e.saved(node, labelSet{"team": "old", "gone": "x"})
			backup := e.recordObject(t, node)
			e.delete(node)
			e.createAs("kubelet", node, nil)
			e.restored(node, labelSet{"team": "old", "gone": "x"})
			e.remove(node, "gone")
			e.editAs("kubectl-label", node, labelSet{"team": "new"})
			e.saved(node, labelSet{"team": "new"})
			e.eventually(func(c *assert.CollectT) { assert.Empty(c, e.queue(c, node)) }, "nothing is left to be applied")

			require.NoError(t, e.client.Delete(t.Context(), e.recordObject(t, node)))
			backup.ObjectMeta = metav1.ObjectMeta{Namespace: backup.Namespace, Name: node, Labels: backup.Labels, Annotations: backup.Annotations}
			require.NoError(t, e.client.Create(t.Context(), backup))
			want := labelSet{"team": "new"}
			if restarts {
				e.stop(w)
				e.watcher()
			} else {
				e.editAs("kubectl-label", node, labelSet{"ticket": "1"})
				want["ticket"] = "1"
			}
			e.saved(node, want)
			e.hasRestored(t, node, want)
		})
	}
}
