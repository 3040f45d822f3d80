package plugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestSaveByHandHidesNoEdit: a node returns while no processor runs. A person labels it, requests a
// save, which waits, and removes the label again.
func TestSaveByHandHidesNoEdit(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("watcher")
	p := e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.saved("node-1", of("node-1", "r1"))
	e.remove("node-1")
	e.stop(p)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: set{corev1.LabelHostname: "node-1", corev1.LabelOSStable: "linux"}}}
	require.NoError(t, e.client.Create(t.Context(), n, client.FieldOwner("kubelet")))
	e.recorded("added", n.UID)
	e.label("node-1", "r2")
	e.eventually(func(c *assert.CollectT) { assert.Len(c, e.queued(c), 2) }, "the label is recorded")
	status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`))
	require.NoError(t, e.client.Status().Patch(t.Context(), n, status, client.FieldOwner("kubelet")))
	assert.Contains(t, e.fails("save", "node-1", "--timeout=1s"), "stay in the queue")
	require.Len(t, e.queued(t), 3)
	removal := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"rack":null}}}`))
	require.NoError(t, e.client.Patch(t.Context(), n, removal))
	e.eventually(func(c *assert.CollectT) { assert.Len(c, e.queued(c), 4) }, "the removal is recorded")

	e.start("processor")
	e.restored("node-1", set{corev1.LabelHostname: "node-1", corev1.LabelOSStable: "linux", "example.com/team": "blue"})
}

// TestSaveByHandLeavesTheMachinesLabelsToIt: an agent changes a label while no watcher runs, and a
// person saves that. Then the node returns as another machine.
func TestSaveByHandLeavesTheMachinesLabelsToIt(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.start("watcher")
	e.start("processor")
	register := func(image string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: set{"image": image}}}
		require.NoError(t, e.client.Create(t.Context(), n, client.FieldOwner("kubelet")))
		return n
	}
	n := register("1")
	e.label("node-1", "r1")
	e.saved("node-1", set{"image": "1", "rack": "r1"})
	e.stop(w)
	e.settled()
	upgrade := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"image":"2"}}}`))
	require.NoError(t, e.client.Patch(t.Context(), n, upgrade, client.FieldOwner("kubelet")))
	e.must("save", "node-1")
	e.saved("node-1", set{"image": "2", "rack": "r1"})
	e.delete("node-1")
	register("3")
	e.start("watcher")
	e.restored("node-1", set{"image": "3", "rack": "r1"})
}
