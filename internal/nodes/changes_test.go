package nodes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
)

// keeping returns Nodes with flags for annotations and taints.
func keeping(t *testing.T, annotations, taints string) *nodes.Nodes {
	t.Helper()
	n := newNodes(t)
	var err error
	n.View.Preserved, err = nodeview.ParsePreserved(annotations, taints)
	require.NoError(t, err)
	return n
}

func whole(t *testing.T, n *nodes.Nodes, name string) *corev1.Node {
	t.Helper()
	found := &corev1.Node{}
	require.NoError(t, n.Client.Get(t.Context(), types.NamespacedName{Name: name}, found))
	return found
}

// TestRelabelChangesOnlyTheView checks a single write.
func TestRelabelChangesOnlyTheView(t *testing.T) {
	t.Parallel()
	n := keeping(t, "example.com/*", "dedicated,changes,goes,evict:NoExecute")
	since := metav1.NewTime(time.Now().Truncate(time.Second))
	others := []corev1.Taint{
		{Key: "other", Value: "1", Effect: corev1.TaintEffectNoSchedule},
		{Key: "dedicated", Value: "its-own", Effect: corev1.TaintEffectNoExecute, TimeAdded: &since},
		{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node-" + rand.String(8), Labels: set{"rack": "r1"},
			Annotations: set{"example.com/goes": "1", "example.com/changes": "1", "example.net/other": "1"},
		},
		Spec: corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.1.0.0/24", Taints: append([]corev1.Taint{
			{Key: "changes", Value: "1", Effect: corev1.TaintEffectPreferNoSchedule}, {Key: "goes", Effect: corev1.TaintEffectNoSchedule},
		}, others...)},
	}
	require.NoError(t, n.Client.Create(t.Context(), node))
	t.Cleanup(func() { assert.NoError(t, n.Client.Delete(context.WithoutCancel(t.Context()), node)) })
	before := whole(t, n, node.Name)

	read, err := n.Get(t.Context(), node.Name)
	require.NoError(t, err)
	wanted := set{
		"rack": "r2", labels.AnnotationKey("example.com/changes"): "2", labels.AnnotationKey("example.com/new"): "multi\nline",
		labels.TaintKey("changes", "PreferNoSchedule"): "2", labels.TaintKey("dedicated", "NoSchedule"): "gpu", labels.TaintKey("evict", "NoExecute"): "",
	}
	left, err := n.Relabel(t.Context(), read, to(wanted), time.Now())
	require.NoError(t, err)
	assert.Equal(t, wanted, left.Labels)

	after := whole(t, n, node.Name)
	assert.Equal(t, left.Revision.String(), after.ResourceVersion, "one write")
	assert.Equal(t, set{"rack": "r2"}, after.Labels)
	assert.Equal(t, set{"example.com/changes": "2", "example.com/new": "multi\nline", "example.net/other": "1"}, after.Annotations)
	taints := append(append([]corev1.Taint{{Key: "changes", Value: "2", Effect: corev1.TaintEffectPreferNoSchedule}}, others...),
		corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: "evict", Effect: corev1.TaintEffectNoExecute})
	for i := range after.Spec.Taints { // the API server's admission plugin may add its own taints at either end
		after.Spec.Taints[i].TimeAdded = taintTime(after.Spec.Taints[i], taints)
	}
	assert.Subset(t, after.Spec.Taints, taints)
	assert.Len(t, after.Spec.Taints, len(before.Spec.Taints)+1, "one goes, two come")
	before.Spec.Taints, after.Spec.Taints = nil, nil
	assert.Equal(t, before.Spec, after.Spec)

	again, err := n.Relabel(t.Context(), left, to(wanted), time.Now())
	require.NoError(t, err)
	assert.Equal(t, left.Revision, again.Revision, "nothing changes, so nothing is written")
	_, err = n.Relabel(t.Context(), read, to(wanted), time.Now())
	require.ErrorIs(t, err, nodes.ErrStale, "the taints are a list, which must be the one that was read")
}

// taintTime returns the time of the taint with the same key and effect, in any time zone.
func taintTime(taint corev1.Taint, among []corev1.Taint) *metav1.Time {
	for _, other := range among {
		if other.MatchTaint(&taint) && other.TimeAdded.Equal(taint.TimeAdded) {
			return other.TimeAdded
		}
	}
	return taint.TimeAdded
}

// All reads of a Node agree, except a list of all.
func TestAllReadsAgree(t *testing.T) {
	t.Parallel()
	n := keeping(t, "example.com/*", "dedicated")
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-" + rand.String(8), Labels: set{"rack": "r1"}, Annotations: set{"example.com/owner": "a", "other": "b"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}},
	}
	require.NoError(t, n.Client.Create(t.Context(), node))
	t.Cleanup(func() { assert.NoError(t, n.Client.Delete(context.WithoutCancel(t.Context()), node)) })
	want := set{"rack": "r1", labels.AnnotationKey("example.com/owner"): "a", labels.TaintKey("dedicated", "NoSchedule"): "gpu"}

	got, err := n.Get(t.Context(), node.Name)
	require.NoError(t, err)
	assert.Equal(t, want, got.Labels)
	at, now, err := n.At(t.Context(), node.Name)
	require.NoError(t, err)
	assert.Equal(t, want, at.Labels)
	assert.False(t, now.IsZero())
	var each *metav1.PartialObjectMetadata
	require.NoError(t, n.Each(t.Context(), func(node *metav1.PartialObjectMetadata) error {
		if node.Name == got.Name {
			each = node
		}
		return nil
	}))
	require.NotNil(t, each)
	assert.Equal(t, set{"rack": "r1"}, each.Labels, "as it is")

	require.NoError(t, n.Client.Delete(t.Context(), node))
	for range 2 {
		got, err = n.Get(t.Context(), node.Name)
		require.NoError(t, err)
		assert.Nil(t, got)
		at, _, err = n.At(t.Context(), node.Name)
		require.NoError(t, err)
		assert.Nil(t, at)
	}
	require.NoError(t, n.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}})) // for the cleanup
}
