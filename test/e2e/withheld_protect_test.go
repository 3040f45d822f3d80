package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/txn"
)

// hold sets whether a finalizer other than nodekeeper's blocks the deletion of a Node.
func (e *env) hold(name string, isHeld bool) {
	const finalizer = "example.com/hold"
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		n := e.node(c, name)
		var left []string
		for _, f := range n.Finalizers {
			if f != finalizer {
				left = append(left, f)
			}
		}
		if isHeld {
			left = append(left, finalizer)
		}
		n.Finalizers = left
		assert.NoError(c, e.client.Update(e.t.Context(), n))
	}, "the finalizers of %s", name)
}

// TestProtectedNodesKeepWithheldLabels checks that each machine gets its labels back, whatever the
// order of the deletions.
//
//nolint:tparallel // its parts share the programs, one after the other
func TestProtectedNodesKeepWithheldLabels(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	e.watcher()
	e.processor("--protect=finalizer")
	for part, do := range map[string]func(name string){
		"another machine is deleted": func(name string) {
			e.register(name, "", "b")
			e.restored(name, labelSet{"rack": "r7"})
			e.protected(name)
			e.hold(name, true)
			e.delete(name)
			e.set(name, "rack", "r8")
			e.hold(name, false)
			e.gone(name)
			e.register(name, "", "a")
			e.restored(name, labelSet{"rack": "r8", worker: "", tenant: "a"})
		},
		"waiting, and identified while it is deleted": func(name string) {
			e.register(name, "", "")
			e.restored(name, labelSet{"rack": "r7"})
			e.protected(name)
			e.hold(name, true)
			e.delete(name)
			e.identify(name, "a")
			e.restored(name, trusted)
			e.remove(name, tenant)
			e.hold(name, false)
			e.gone(name)
			e.register(name, "", "a")
			e.restored(name, labelSet{"rack": "r7", worker: ""})
		},
		"waiting, and identified as another while it is deleted": func(name string) {
			e.register(name, "", "")
			e.restored(name, labelSet{"rack": "r7"})
			e.protected(name)
			e.hold(name, true)
			e.delete(name)
			e.identify(name, "b")
			e.hold(name, false)
			e.gone(name)
			e.register(name, "", "a")
			e.restored(name, trusted)
		},
		"restored while it is deleted": func(name string) {
			e.register(name, "", "a")
			e.hold(name, true)
			e.delete(name)
			e.restored(name, trusted)
			e.hold(name, false)
			e.gone(name)
			e.register(name, "", "b")
			e.restored(name, labelSet{"rack": "r7"})
		},
		"many machines in quick succession": func(name string) {
			for _, id := range []string{"b", "", "c", "a", "", "b", "a", "c"} {
				e.register(name, "", id)
				e.delete(name)
				e.gone(name)
			}
			e.register(name, "", "b")
			e.restored(name, labelSet{"rack": "r7"})
			e.delete(name)
			e.gone(name)
			e.register(name, "", "a")
			e.restored(name, trusted)
		},
		"two trusted machines in quick succession": func(name string) {
			e.register(name, "", "b")
			e.restored(name, labelSet{"rack": "r7"})
			e.editAs("kubectl-label", name, labelSet{"b.node-restriction.kubernetes.io/own": "b"})
			e.delete(name)
			e.gone(name)
			e.register(name, "", "a")
			e.restored(name, trusted)
			e.delete(name)
			e.gone(name)
			e.register(name, "", "b")
			e.restored(name, labelSet{"rack": "r7", "b.node-restriction.kubernetes.io/own": "b"})
			e.delete(name)
			e.gone(name)
			e.register(name, "", "c")
			e.restored(name, labelSet{"rack": "r7"})
		},
	} {
		t.Run(part, func(t *testing.T) {
			e.t = t
			name := e.name(txn.NodeHash(part)[:8])
			first := e.register(name, "", "a")
			e.editAs("kubectl-label", name, trusted)
			e.saved(name, trusted)
			e.protected(name)
			e.delete(name)
			e.gone(name)
			e.recorded(first.UID, txn.Deleted)
			do(name)
			e.noted(e.node(t, name))
			e.drained(name)
		})
	}
	e.t = t
	e.unprotect()
}
