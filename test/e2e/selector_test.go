package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/txn"
)

// TestNodeSelector checks that a node outside the selection is neither recorded nor restored.
// Labels saved before are kept. A node that enters the selection is handled like a new one.
func TestNodeSelector(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher("--node-selector=!skip")
	e.processor("--node-selector=!skip")
	kept, out := e.name("kept"), e.name("out")
	e.create(out, labelSet{"skip": "", "rack": "r0"})
	first := e.create(kept, labelSet{"rack": "r1"})
	e.saved(kept, labelSet{"rack": "r1"})

	e.edit(kept, map[string]*string{"skip": new(""), "rack": new("r2")})
	e.delete(kept)
	second := e.create(kept, nil)
	e.restored(kept, labelSet{"rack": "r1"})
	require.NotEqual(t, first.UID, second.UID)
	e.delete(kept)
	e.recorded(second.UID, txn.Deleted)
	e.create(kept, labelSet{"skip": "", "rack": "r4"})

	e.set(out, "rack", "r9")
	e.remove(out, "skip") // it is selected, and has no record
	e.saved(out, labelSet{"rack": "r9"})
	assert.Equal(t, labelSet{"skip": "", "rack": "r4"}, e.node(t, kept).Labels, "nothing was put onto a node that is not looked after")
	e.remove(kept, "skip") // it is selected, and its record is of a former incarnation
	e.restored(kept, labelSet{"rack": "r1"})
	e.edit(kept, map[string]*string{"skip": new(""), "rack": new("r5")})
	e.set(kept, "rack", "r6")
	e.remove(kept, "skip") // it left the selection and enters it in the same incarnation
	e.saved(kept, labelSet{"rack": "r6"})
}

// TestNodeSelectorAndProtection checks that an unselected node does not wait for its labels when it
// is deleted, regardless of who added the finalizer.
func TestNodeSelectorAndProtection(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	e.watcher("--node-selector=!skip")
	e.processor("--node-selector=!skip", "--protect=finalizer")
	name := e.name("node")
	e.create(name, labelSet{"rack": "r1"})
	e.protected(name)
	e.saved(name, labelSet{"rack": "r1"})
	e.edit(name, map[string]*string{"skip": new(""), "rack": new("r2")})
	e.delete(name)
	e.gone(name)
	assert.Equal(t, labelSet{"rack": "r1"}, e.record(t, name).Labels)
	e.unprotect()
	e.settle()
}
