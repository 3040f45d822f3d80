package plugin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/txn"
)

const own = "node-restriction.kubernetes.io/own"

func (e *env) identify(name, systemUUID string) {
	e.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(e.t, e.client.Status().Patch(e.t.Context(), n, rawMerge(`{"status":{"nodeInfo":{"systemUUID":"`+systemUUID+`"}}}`)))
}

// holds waits until a Node has these labels.
func (e *env) holds(name string, want set) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		labels, _ := e.node(c, name)
		assert.Equal(c, want, labels)
	}, "labels of %s", name)
}

// returns creates a Node of a machine, and restores it by hand.
func (e *env) returns(name, systemUUID string, want set) {
	e.t.Helper()
	e.register(name, systemUUID)
	e.must("restore", name, "--ignore-missing-end")
	e.holds(name, want)
}

// severalSets creates a record of an absent node with labels of machines a, b and c. The record
// follows c.
func (e *env) severalSets(name string) {
	e.t.Helper()
	e.trust(name, "a", set{"rack": "r1", worker: ""})
	e.returns(name, "b", set{"rack": "r1"})
	e.relabel(name, set{tenant: "b"})
	e.must("save", name)
	e.delete(name)
	e.returns(name, "c", set{"rack": "r1"})
	e.relabel(name, set{own: "c"})
	e.must("save", name)
	e.delete(name)
	require.Len(e.t, e.record(e.t, name).Withheld, 2)
}

func TestSeveralWithheldSetsReturnEachToItsMachine(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.severalSets("node-1")
	exported := e.must("export", "node-1")
	assert.Contains(t, e.must("import", e.file(exported), "--overwrite"), "unchanged")
	e.must("set", "node-1", "more=x", "--ignore-missing-end")
	require.Len(t, e.record(t, "node-1").Withheld, 3)
	e.returns("node-1", "b", set{"rack": "r1", "more": "x", tenant: "b"})
	assert.Contains(t, e.fails("set", "node-1", worker+"-"), "exists")
	e.delete("node-1")
	assert.Contains(t, e.fails("set", "node-1", worker+"=other", "--ignore-missing-end"), "--overwrite")
	e.returns("node-1", "a", set{"rack": "r1", "more": "x", worker: ""})
	e.delete("node-1")
	e.must("set", "node-1", own+"-", "--ignore-missing-end")
	e.returns("node-1", "c", set{"rack": "r1", "more": "x"})
	e.delete("node-1")
	e.returns("node-1", "b", set{"rack": "r1", "more": "x", tenant: "b"})
	e.delete("node-1")

	// The file is older than the record: restricted labels among its saved ones are given to the
	// name.
	assert.Contains(t, e.must("import", e.file(exported), "--overwrite"), "replaced")
	e.returns("node-1", "a", set{"rack": "r1", worker: "", own: "c"})
}

func TestForgetRemovesWithheldLabelsForGood(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.severalSets("node-1")
	read := e.record(t, "node-1")
	e.must("forget", "node-1", "--yes")
	assert.Nil(t, e.record(t, "node-1"))
	for _, id := range []string{"a", "b", "c"} {
		e.register("node-1", id)
		assert.Contains(t, e.must("restore", "node-1"), "no labels are saved")
		e.delete("node-1")
	}
	late := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: read.Source, Revision: read.Revision, Labels: set{worker: ""}, ObservedAt: time.Now()}
	require.NoError(t, e.queue().Put(t.Context(), late))
	e.settled()
	assert.Nil(t, e.record(t, "node-1"))

	e.severalSets("node-2")
	e.returns("node-2", "", set{"rack": "r1"})
	e.eventually(func(c *assert.CollectT) { assert.True(c, e.record(c, "node-2").WaitsFor(e.live("node-2").UID)) }, "it waits")
	shown := e.must("show", "node-2")
	assert.Equal(t, 3, strings.Count(shown, "reports neither providerID nor systemUUID"), shown)
	e.must("forget", "node-2", "--yes")
	e.identify("node-2", "a")
	time.Sleep(3 * time.Second) // a check that restores nothing leaves no trace to wait for
	e.holds("node-2", set{"rack": "r1"})
	e.must("save", "node-2")
	assert.Empty(t, e.record(t, "node-2").Withheld)
	e.delete("node-2")
	e.returns("node-2", "c", set{"rack": "r1"})
}
