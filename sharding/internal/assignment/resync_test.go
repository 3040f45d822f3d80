package assignment

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/handover"
)

// cut is a resource whose watches end after the first object, as watches that fall behind do.
type cut struct {
	metadata.ResourceInterface

	all []metav1.PartialObjectMetadata
}

func (c *cut) Namespace(string) metadata.ResourceInterface { return c }

func (c *cut) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(1, false)
	w.Add(c.all[0].DeepCopy())
	w.Stop()
	return w, nil
}

func (c *cut) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return &metav1.PartialObjectMetadataList{Items: c.all}, nil
}

// Objects move while a resync reads them, and the API server ends a watch that falls behind.
func TestResyncContinuesInPagesIfItsStreamIsCut(t *testing.T) {
	t.Parallel()
	const n = 40
	v := viewOf(nil, []string{"web-0", "web-1"})
	v.ring.Status.LabelledResources = []v1alpha1.GroupResource{secrets}
	v.ring.Spec.Handover.MaxConcurrentMoves = n
	objects := &cut{}
	c := &Controller{metrics: newMetrics()}
	of := &assigner{Controller: c, name: "website", keys: keysOf(v1alpha1.DefaultPrefix, "website"), view: v, resyncs: newResyncs(), dirty: make(chan struct{}, 1)}
	tr := newTrackerWith(of, secrets, objects)
	defer tr.queue.ShutDown()
	misplaced := 0
	for i := range n {
		m := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprintf("s-%d", i), Labels: map[string]string{of.keys.shard: "web-0"}}}
		if tr.decide(&m, life{}, tr.situation(keyFor(&m), v)).Action != handover.Keep {
			misplaced++
		}
		objects.all = append(objects.all, m)
	}
	require.Greater(t, misplaced, 1)
	require.NoError(t, tr.readAll(t.Context(), newScan(v)))
	_, found := tr.pending(v)
	assert.Equal(t, misplaced, found)
}
