package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/txn"
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

// The keys that users have edited exceed what an annotation may have of them.
func TestRestoreKeepsManyEdits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	p := e.processor()
	node := e.name("node")
	e.createAs("kubelet", node, labelSet{"zone": "a"})
	e.editAs("kubectl-label", node, labelSet{"team": "blue", "rack": "r7"})
	e.saved(node, labelSet{"zone": "a", "team": "blue", "rack": "r7"})
	e.drained(node)
	e.stop(p)
	e.delete(node)
	own := labelSet{"zone": "b", "kubernetes.io/os": "linux", "kubernetes.io/hostname": node}
	e.createAs("kubelet", node, own)
	edits := labelSet{"team": "green"}
	for i := range labels.MaxKeysBytes / 60 {
		edits[fmt.Sprintf("example.com/%s-%04d", strings.Repeat("k", 50), i)] = "v"
	}
	edited := e.editAs("kubectl-label", node, edits)
	e.recorded(edited.UID, txn.Updated)
	e.processor()
	want := union(own, edits, labelSet{"rack": "r7"})
	e.restored(node, want)
	e.settle()
	e.hasRestored(t, node, want)
	e.saved(node, want)
}

// Two Nodes in a row are edited, and deleted before a processor has restored their labels. The next
// one gets the saved labels with these edits.
func TestEditsOfANodeThatIsDeletedBeforeItsRestore(t *testing.T) {
	t.Parallel()
	for name, isAway := range map[string]bool{"the node is away when a processor starts": true, "the next node waits": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.watcher()
			p := e.processor()
			node := e.name("node")
			first := e.createAs("kubelet", node, labelSet{"zone": "a"})
			e.editAs("kubectl-label", node, labelSet{"team": "blue", "rack": "r7", "tier": "gold", "gone": "x"})
			e.saved(node, labelSet{"zone": "a", "team": "blue", "rack": "r7", "tier": "gold", "gone": "x"})
			e.eventually(func(c *assert.CollectT) { assert.Empty(c, e.queue(c, node)) }, "nothing is left to be applied")
			e.stop(p)
			e.delete(node)

			second := e.createAs("kubectl-create", node, labelSet{"gone": "y", "pool": "default"})
			e.editAs("kubectl-label", node, labelSet{"team": "green", "ticket": "4711"})
			e.remove(node, "gone")
			e.delete(node)
			third := e.createAs("kubelet", node, labelSet{"zone": "b"})
			e.editAs("kubectl-label", node, labelSet{"rack": "r9"})
			e.delete(node)
			edited := map[types.UID]string{second.UID: "gone,team,ticket", third.UID: "rack"}
			e.eventually(func(c *assert.CollectT) {
				got := map[types.UID]string{}
				for _, cm := range e.queue(c, node) {
					if keys, isThere := cm.Annotations["nodekeeper.dev/edited-labels"]; isThere {
						got[types.UID(cm.Annotations["nodekeeper.dev/uid"])] = keys
					}
				}
				delete(got, first.UID)
				assert.Equal(c, edited, got)
			}, "both ends are recorded with their edits")

			if isAway {
				e.processor()
				r := e.saved(node, labelSet{"zone": "a", "team": "green", "rack": "r9", "tier": "gold", "ticket": "4711"})
				assert.Equal(t, first.UID, r.Source)
				assert.True(t, r.Ended)
				assert.Equal(t, labels.Keys("zone"), r.Machine)
			}
			e.createAs("kubelet", node, labelSet{"zone": "c"})
			if !isAway {
				e.processor()
			}
			want := labelSet{"zone": "c", "team": "green", "rack": "r9", "tier": "gold", "ticket": "4711"}
			e.restored(node, want)
			e.settle()
			e.hasRestored(t, node, want)
			e.saved(node, want)
		})
	}
}

// A protected Node is edited and deleted while no watcher runs, before its labels are restored.
func TestEditsOfAProtectedNodeThatIsDeletedBeforeItsRestore(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	w, p := e.watcher(), e.processor("--protect=finalizer")
	node := e.name("node")
	e.createAs("kubelet", node, labelSet{"zone": "a"})
	e.editAs("kubectl-label", node, labelSet{"team": "blue", "rack": "r7"})
	e.saved(node, labelSet{"zone": "a", "team": "blue", "rack": "r7"})
	e.protected(node)
	require.NoError(t, w.Kill())
	e.delete(node)
	e.gone(node)
	e.createAs("kubelet", node, labelSet{"zone": "b", "kubernetes.io/os": "linux", "kubernetes.io/hostname": node})
	e.protected(node)
	require.NoError(t, p.Kill())
	e.editAs("kubectl-label", node, labelSet{"team": "green"})
	e.delete(node)

	e.processor("--protect=finalizer")
	e.gone(node)
	e.saved(node, labelSet{"zone": "a", "team": "green", "rack": "r7"})
	e.unprotect()
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
