package plugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/txn"
)

// TestRestoreThatIsNotDoneBindsNoLabels has a processor that keeps all labels and begins to restore
// another machine. The processors are rolled back before it finishes. The label still belongs to
// the machine from which it was saved.
func TestRestoreThatIsNotDoneBindsNoLabels(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.start("processor")
	e.withholds("node-1") // machine b, and label worker of machine a
	e.delete("node-1")
	e.stop(p)

	p = e.start("processor", "--restricted-labels=keep")
	e.refuse("node-1", "no racks today")
	e.register("node-1", "c")
	added := txn.Of(txn.Added, viewed(e.live("node-1")))
	require.NoError(t, e.queue().Put(t.Context(), added))
	e.eventually(func(c *assert.CollectT) { assert.True(c, e.record(c, "node-1").WaitsFor(e.live("node-1").UID)) }, "it is about to be put back")
	e.delete("node-1")
	e.settled()
	e.stop(p)
	e.obey()

	e.start("processor")
	e.register("node-1", "c")
	e.must("restore", "node-1", "--ignore-missing-end")
	own, _ := e.node(t, "node-1")
	assert.Equal(t, set{"rack": "r1"}, own, "machine c never had more")
	e.delete("node-1")
	e.register("node-1", "a")
	e.must("restore", "node-1", "--ignore-missing-end")
	own, _ = e.node(t, "node-1")
	assert.Equal(t, set{"rack": "r1", worker: ""}, own, "machine a gets back what was saved from it")
}

// TestRestoreThatIsNotDoneLeavesGivenLabelsToTheName has a person give a label to the name. Machine
// a, which has withheld labels, joins and leaves before it gets any label. The given label still
// belongs to the name.
func TestRestoreThatIsNotDoneLeavesGivenLabelsToTheName(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.trust("node-1", "a", set{"rack": "r1", worker: ""})
	e.must("set", "node-1", tenant+"=given", "--ignore-missing-end")
	e.refuse("node-1", "no racks today")
	e.register("node-1", "a")
	require.NoError(t, e.queue().Put(t.Context(), txn.Of(txn.Added, viewed(e.live("node-1")))))
	e.eventually(func(c *assert.CollectT) { assert.True(c, e.record(c, "node-1").WaitsFor(e.live("node-1").UID)) }, "it is about to be put back")
	e.delete("node-1")
	e.settled()
	e.obey()

	e.register("node-1", "b")
	e.must("restore", "node-1", "--ignore-missing-end")
	own, _ := e.node(t, "node-1")
	assert.Equal(t, set{"rack": "r1", tenant: "given"}, own)
}
