package e2e_test

import (
	"encoding/json"
	"maps"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/revision"
)

// labelSet holds the labels of a node without the marker.
type labelSet = map[string]string

// create creates a Node as a kubelet or an autoscaler does.
func (e *env) create(name string, own labelSet) *corev1.Node {
	e.t.Helper()
	e.nodes[name] = true
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(own)},
		// The Node has no machine, so nothing must be scheduled there in a foreign cluster.
		Spec: corev1.NodeSpec{Unschedulable: true},
	}
	require.NoError(e.t, e.client.Create(e.t.Context(), node))
	return node
}

// set sets a label of a node like kubectl label, and returns the updated Node.
func (e *env) set(name, key, value string) *corev1.Node {
	e.t.Helper()
	return e.edit(name, map[string]*string{key: &value})
}

// remove removes a label of a node like kubectl label.
func (e *env) remove(name, key string) {
	e.t.Helper()
	e.edit(name, map[string]*string{key: nil})
}

// edit changes labels of a node in one write, and returns the updated Node. A nil value removes a
// label.
func (e *env) edit(name string, changes map[string]*string) *corev1.Node {
	e.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(e.t, e.client.Patch(e.t.Context(), node, mergeLabels(e.t, changes)))
	return node
}

func mergeLabels(t require.TestingT, changes map[string]*string) client.Patch {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changes}})
	require.NoError(t, err)
	return client.RawPatch(types.MergePatchType, body)
}

// delete ends the incarnation of a node.
func (e *env) delete(name string) {
	e.t.Helper()
	require.NoError(e.t, e.client.Delete(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// node reads a Node.
func (e *env) node(t require.TestingT, name string) *corev1.Node {
	node := &corev1.Node{}
	require.NoError(t, e.client.Get(e.t.Context(), types.NamespacedName{Name: name}, node))
	return node
}

// labels reads a node's own labels and its marker.
func (e *env) labels(t require.TestingT, name string) (own labelSet, marker string) {
	return labels.Split(e.node(t, name).Labels)
}

// restored waits until a returned node has its labels back: exactly these, and the marker of a
// restore. If a webhook answers, the Node may have both from its first version on, so restored also
// waits until a processor has recorded the return.
func (e *env) restored(name string, want labelSet) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) { e.hasRestored(c, name, want) }, "the labels of node %s are restored", name)
	if e.asked {
		e.noted(e.node(e.t, name))
	}
}

// hasRestored checks the labels and the marker of a returned node. The marker "pending" means that
// the node is not restored yet.
func (e *env) hasRestored(t require.TestingT, name string, want labelSet) {
	own, marker := e.labels(t, name)
	assert.Equal(t, want, own, "labels of node %s", name)
	_, err := revision.Parse(marker)
	assert.NoError(t, err, "marker of node %s", name)
}
