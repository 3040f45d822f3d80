package nodes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"nodekeeper.dev/internal/nodeview"
)

// TestIgnoredLabelsAreNotTouched by any method.
func TestIgnoredLabelsAreNotTouched(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	var err error
	n.View, err = nodeview.Parse("", "state, example.com/*", "")
	require.NoError(t, err)
	name := "node-" + rand.String(8)
	require.NoError(t, n.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: set{"state": "done", "example.com/a": "1", "rack": "r1"},
	}}))
	t.Cleanup(func() {
		assert.NoError(t, n.Client.Delete(context.WithoutCancel(t.Context()), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	})

	got, err := n.Get(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, set{"rack": "r1"}, got.Labels)
	at, _, err := n.At(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, set{"rack": "r1"}, at.Labels)
	require.NoError(t, n.Each(t.Context(), func(each *metav1.PartialObjectMetadata) error {
		if each.Name == name {
			assert.Equal(t, set{"state": "done", "example.com/a": "1", "rack": "r1"}, each.Labels, "as it is")
		}
		return nil
	}))
	left, err := n.Relabel(t.Context(), got, to(set{"rack": "r2"}), time.Now())
	require.NoError(t, err)
	assert.Equal(t, set{"rack": "r2"}, left.Labels)

	n.View = nodeview.View{}
	got, err = n.Get(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, set{"state": "done", "example.com/a": "1", "rack": "r2"}, got.Labels)
}
