package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProtectedNodeOfALateMachine checks that no other machine gets a restricted label of a Node
// whose kubelet has joined it since the last save. A processor can read the machine when it lets
// the Node go.
//
//nolint:tparallel // its parts share the programs, one after the other
func TestProtectedNodeOfALateMachine(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	w := e.watcher()
	e.processor("--protect=finalizer", "--save-delay=10m")
	for _, part := range []string{"watched", "not watched"} {
		t.Run(part, func(t *testing.T) {
			e.t = t
			name := e.name(part[:3])
			n := e.create(name, nil)
			e.editAs("kubectl-label", name, labelSet{tenant: "a"})
			r := e.saved(name, labelSet{tenant: "a"})
			require.Equal(t, n.UID, r.Identity.UID)
			require.True(t, r.Identity.IsZero(), "no kubelet has joined")
			e.protected(name)
			e.drained(name)
			if part != "watched" {
				e.stop(w)
			}
			e.identify(name, "a")
			e.editAs("kubelet", name, labelSet{"kubernetes.io/os": "linux"})
			e.delete(name)
			e.gone(name)
			assert.Equal(t, "a", e.record(t, name).Identity.SystemUUID)
			if part != "watched" {
				e.watcher()
			}
			e.register(name, "", "b")
			e.eventually(func(c *assert.CollectT) {
				_, marker := e.labels(c, name)
				assert.NotEmpty(c, marker)
			}, "the node is restored")
			own, _ := e.labels(t, name)
			assert.NotContains(t, own, tenant, "it is another machine")
		})
	}
	e.t = t
	e.unprotect()
}
