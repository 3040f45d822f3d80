package assignment

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
)

// cluster lists a single namespace, unless it is deleted, and counts the patches of objects.
type cluster struct {
	patches

	selector, field string
	deleted         bool
}

func (c *cluster) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	c.selector, c.field = o.LabelSelector, o.FieldSelector
	if c.deleted {
		return &metav1.PartialObjectMetadataList{}, nil
	}
	return &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}}, nil
}

// The cache of namespaces can be behind: a resync may find an object of a namespace that has just
// joined the ring.
func TestObjectKeepsItsShardUntilItsNamespaceIsKnownToHaveLeft(t *testing.T) {
	t.Parallel()
	for name, hasLeft := range map[string]bool{"it has joined": false, "it has left": true} {
		v := viewOf(nil, []string{"web-0"})
		v.ring.Status.LabelledResources = []v1alpha1.GroupResource{secrets}
		v.ring.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
		v.selection = place.Only("other")
		objects := &cluster{deleted: hasLeft}
		of := &assigner{Controller: &Controller{metrics: newMetrics()}, name: "website", keys: keysOf(v1alpha1.DefaultPrefix, "website"), view: v, resyncs: newResyncs(), dirty: make(chan struct{}, 1)}
		tr := newTrackerWith(of, secrets, objects)
		of.Metadata = getter{objects}
		tr.addFound(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "s", UID: "uid", ResourceVersion: "1", Labels: map[string]string{of.keys.shard: "web-0"},
		}})
		key := types.NamespacedName{Namespace: "n", Name: "s"}
		_, err := tr.process(t.Context(), key)
		tr.queue.ShutDown()
		require.NoError(t, err, name)
		assert.Equal(t, "team=blue", objects.selector, name)
		assert.Equal(t, "metadata.name=n", objects.field, name)
		assert.Equal(t, hasLeft, objects.sent == 1, name)
		assert.Equal(t, hasLeft, tr.known(key).found == nil, name)
	}
}
