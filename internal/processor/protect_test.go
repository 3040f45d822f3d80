package processor_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/processor/protection"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// A processor with protection protects the Nodes of all tests, so none of these tests is parallel.

var protecting = setup{protects: true}

// protected creates a node and returns it once it has the finalizer.
func (c *cluster) protected(t *testing.T, name string, own set) *corev1.Node {
	t.Helper()
	c.addNode(t, name, own)
	return c.waitProtected(t, name)
}

func (c *cluster) waitProtected(t *testing.T, name string) *corev1.Node {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Contains(c.node(t, name).Finalizers, protection.Finalizer) }, patience, tick)
	return c.node(t, name)
}

// delete requests the deletion of a node, which may wait.
func (c *cluster) delete(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// waitGone waits until the node is gone.
func (c *cluster) waitGone(t *testing.T, name string) {
	t.Helper()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		err := c.Get(t.Context(), types.NamespacedName{Name: name}, &corev1.Node{})
		assert.True(ct, apierrors.IsNotFound(err), "the node: %v", err)
	}, patience, tick)
}

// savedLabels returns the labels in the record of a node.
func (c *cluster) savedLabels(t *testing.T, name string) set {
	t.Helper()
	r := c.record(t, name)
	require.NotNil(t, r, "the record of node %s", name)
	return r.Labels
}

// hold adds a foreign finalizer to a node; letGo removes it.
func (c *cluster) hold(t *testing.T, n *corev1.Node) (letGo func()) {
	t.Helper()
	const theirs = "example.com/theirs"
	c.edit(t.Context(), t, n, func(n *corev1.Node) { n.Finalizers = append(n.Finalizers, theirs) })
	return func() {
		t.Helper()
		n := c.node(t, n.Name)
		c.edit(t.Context(), t, n, func(n *corev1.Node) {
			n.Finalizers = slices.DeleteFunc(n.Finalizers, func(f string) bool { return f == theirs })
		})
	}
}

func TestLastLabelsAreSavedBeforeAProtectedNodeGoes(t *testing.T) {
	c := newCluster(t)
	c.process(t, protecting)
	n := c.protected(t, c.name("node"), set{"rack": "r1"})
	assert.Nil(t, c.record(t, n.Name), "nothing is recorded here")
	c.edit(t.Context(), t, n, func(n *corev1.Node) { n.Labels = set{"rack": "r2", "team": "blue"} })

	c.delete(t, n.Name)
	c.waitGone(t, n.Name)

	r := c.record(t, n.Name)
	require.NotNil(t, r)
	assert.Equal(t, set{"rack": "r2", "team": "blue"}, r.Labels)
	assert.Equal(t, n.UID, r.Source)
}

func TestLabelsEditedWhileAProtectedNodeWaitsAreSaved(t *testing.T) {
	c := newCluster(t)
	stop := c.process(t, protecting)
	n := c.protected(t, c.name("node"), set{"rack": "r1"})
	stop()

	c.delete(t, n.Name)
	n = c.node(t, n.Name)
	require.NotNil(t, n.DeletionTimestamp, "every service is down, and the node waits")
	c.edit(t.Context(), t, n, func(n *corev1.Node) { n.Labels = set{"rack": "r2"} })
	c.process(t, protecting)
	c.waitGone(t, n.Name)

	r := c.record(t, n.Name)
	require.NotNil(t, r)
	assert.Equal(t, set{"rack": "r2"}, r.Labels)
	assert.Equal(t, n.ResourceVersion, r.Revision.String())
}

func TestOtherFinalizersComeFirst(t *testing.T) {
	c := newCluster(t)
	c.process(t, protecting)
	n := c.protected(t, c.name("node"), set{"rack": "r1"})
	letGo := c.hold(t, n)
	c.delete(t, n.Name)
	// The processor has had enough time once another node is deleted.
	other := c.protected(t, c.name("other"), nil)
	c.delete(t, other.Name)
	c.waitGone(t, other.Name)

	n = c.node(t, n.Name)
	assert.Contains(t, n.Finalizers, protection.Finalizer, "its labels may change yet")
	assert.Nil(t, c.record(t, n.Name))
	c.edit(t.Context(), t, n, func(n *corev1.Node) { n.Labels = set{"rack": "r2"} })
	letGo()
	c.waitGone(t, n.Name)
	assert.Equal(t, set{"rack": "r2"}, c.savedLabels(t, n.Name))
}

func TestLabelsThatWereNeverRestoredAreNotSavedInTheEnd(t *testing.T) {
	c := newCluster(t)
	c.process(t, protecting)
	name := c.name("node")
	saved := lastLife
	saved.Node = name
	c.save(t, saved)
	c.protected(t, name, set{"new": "n"})

	c.delete(t, name)
	c.waitGone(t, name)
	assert.Equal(t, saved, *c.record(t, name))
}

func TestProtectedNodeWaitsForTheFirstProcessor(t *testing.T) {
	c := newCluster(t)
	name := c.name("node")
	n := c.addNode(t, name, set{"rack": "r1"})
	c.edit(t.Context(), t, n, func(n *corev1.Node) { n.Finalizers = []string{protection.Finalizer} }) // for example by a policy of the cluster
	c.delete(t, name)
	c.process(t, protecting)
	c.waitGone(t, name)
	assert.Equal(t, set{"rack": "r1"}, c.savedLabels(t, name))
}

func TestUnreadableRecordHoldsAProtectedNode(t *testing.T) {
	c := newCluster(t)
	c.process(t, protecting)
	n := c.protected(t, c.name("node"), set{"rack": "r1"})
	nonsense := record.Record{Node: n.Name, Labels: set{"rack": "r0"}, Revision: revision.Of("nonsense")}.ConfigMap(c.records)
	require.NoError(t, c.Create(t.Context(), nonsense))
	c.delete(t, n.Name)
	assert.Contains(t, c.waitEvent(t, metav1.NamespaceDefault, n.Name, "DeletionWaits"), "not a readable record")
	assert.NotNil(t, c.node(t, n.Name).DeletionTimestamp)

	require.NoError(t, c.Delete(t.Context(), nonsense))
	c.waitGone(t, n.Name)
	assert.Equal(t, set{"rack": "r1"}, c.savedLabels(t, n.Name))
}

func TestRefusedRestoreDoesNotHoldAProtectedNode(t *testing.T) {
	c := newCluster(t)
	name := c.name("node")
	saved := lastLife
	saved.Node = name
	c.save(t, saved)
	n := c.addNode(t, name, set{"new": "n"})
	c.refuseRestores(t, name)
	c.put(t, seen(txn.Added, n))
	c.process(t, protecting)
	c.waitProtected(t, name)
	c.waitEvent(t, metav1.NamespaceDefault, name, "LabelsRestoreFailed")

	c.delete(t, name)
	c.waitGone(t, name)
	c.waitApplied(t, name)
	assert.Equal(t, saved, *c.record(t, name))
}

func TestNodeThatCannotHaveARecordIsNotProtected(t *testing.T) {
	c := newCluster(t)
	c.process(t, protecting)
	c.addNode(t, record.RootCAName, set{"rack": "r1"})
	c.protected(t, c.name("later"), nil)
	assert.Empty(t, c.node(t, record.RootCAName).Finalizers)
}

func TestFaultsWhileAProtectedNodeIsLetGo(t *testing.T) {
	c := newCluster(t)
	const cm = "ConfigMap"
	for name, f := range map[string]fault{
		"answers to patches lost":           lost(faults.Patch, "Node", "", 3),
		"answer to the record's write lost": lost(faults.Create, cm, c.records, 1),
		"conflicts of the node":             &faults.Conflict{Calls: faults.Calls{Verb: faults.Patch, Kind: "Node", Skip: 1, Times: 15}},
		"conflict of the record":            &faults.Conflict{Calls: faults.Calls{Verb: faults.Create, Kind: cm, Times: 1}},
		"outage":                            &faults.Outage{Calls: faults.Calls{Times: 5}},
		"every answer lost for a while":     &faults.LostAnswer{Calls: faults.Calls{Times: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			stop := c.process(t, setup{protects: true, faults: []faults.Fault{f}})
			defer stop()
			// The later nodes start from the state that the fault left behind.
			for _, suffix := range []string{"a", "b", "c"} {
				n := c.protected(t, c.name("node-"+suffix), set{"rack": name[:1]})
				c.delete(t, n.Name)
				c.waitGone(t, n.Name)
				assert.Equal(t, set{"rack": name[:1]}, c.savedLabels(t, n.Name))
				require.NoError(t, c.Delete(t.Context(), record.Record{Node: n.Name}.ConfigMap(c.records)))
			}
			assert.Positive(t, f.Hits())
		})
	}
}

// The labels change between the save and the removal of the finalizer.
func TestEditBetweenTheSaveAndTheEndIsSaved(t *testing.T) {
	c := newCluster(t)
	name := c.name("node")
	change := &faults.Race{
		Calls: faults.Calls{Verb: faults.Patch, Kind: "Node", Name: name, Skip: 1, Times: 1}, // skip the patch that adds the finalizer
		First: func(ctx context.Context) {
			body := []byte(`{"metadata":{"labels":{"rack":"r2"}}}`)
			assert.NoError(t, c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, body)))
		},
	}
	c.process(t, setup{protects: true, faults: []faults.Fault{change}})
	c.protected(t, name, set{"rack": "r1"})
	c.delete(t, name)
	c.waitGone(t, name)
	assert.Positive(t, change.Hits())
	assert.Equal(t, set{"rack": "r2"}, c.savedLabels(t, name))
}

func TestTwoProcessorsLetProtectedNodesGo(t *testing.T) {
	c := newCluster(t)
	c.process(t, protecting)
	c.process(t, protecting)
	var names []string
	for _, suffix := range []string{"a", "b", "c", "d", "e", "f"} {
		names = append(names, c.protected(t, c.name(suffix), set{"rack": suffix}).Name)
	}
	for _, name := range names {
		c.delete(t, name)
	}
	for i, name := range names {
		c.waitGone(t, name)
		assert.Equal(t, set{"rack": string(rune('a' + i))}, c.savedLabels(t, name))
	}
}
