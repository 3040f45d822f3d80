package processor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
)

// TestEditWhileANodeIsLetGoIsSaved: the API server deletes a Node in a step of its own after it has checked what the write that takes
// its last finalizer away is conditional on. Two users who edit at that time get in between soon.
func TestEditWhileANodeIsLetGoIsSaved(t *testing.T) {
	c := newCluster(t)
	const most = 100 // nodes
	for i := range most {
		name := c.name(fmt.Sprintf("node-%d", i))
		edits := &editors{cluster: c, name: name}
		release := &faults.Race{Calls: faults.Calls{Verb: faults.Patch, Kind: "Node", Name: name, Skip: 1}, First: edits.begin} // the first gives the finalizer
		stop := c.process(t, setup{protects: true, faults: []faults.Fault{release}})
		last := c.lastOf(t, c.protected(t, name, set{"rack": "r0"}))
		require.EventuallyWithT(t, func(ct *assert.CollectT) { assert.Equal(ct, last.Labels, c.savedLabels(t, name)) }, patience, tick)
		stop()
		edits.Wait()
		if c.record(t, name).Revision.String() == last.ResourceVersion {
			return // that edit came between
		}
	}
	require.FailNow(t, "no edit came between")
}

// lastOf deletes a protected node and returns what a watch shows of its end.
func (c *cluster) lastOf(t *testing.T, n *corev1.Node) *corev1.Node {
	t.Helper()
	only := &metav1.ListOptions{FieldSelector: "metadata.name=" + n.Name, ResourceVersion: n.ResourceVersion}
	seen, err := c.Watch(t.Context(), &corev1.NodeList{}, &client.ListOptions{Raw: only})
	require.NoError(t, err)
	defer seen.Stop()
	c.delete(t, n.Name)
	for e := range seen.ResultChan() {
		if last, isNode := e.Object.(*corev1.Node); e.Type == watch.Deleted && assert.True(t, isNode) {
			return last
		}
	}
	require.FailNow(t, "the watch ended before the node")
	return nil
}

// editors are two users who edit a node.
type editors struct {
	*cluster
	sync.WaitGroup

	name string
}

// begin lets each of them make a few edits, as fast as can be.
func (e *editors) begin(ctx context.Context) {
	for user := range 2 {
		e.Go(func() {
			for i := range 4 {
				body := fmt.Appendf(nil, `{"metadata":{"labels":{"rack":"r%d-%d"}}}`, user, i)
				err := e.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.name}}, client.RawPatch(types.MergePatchType, body))
				if apierrors.IsNotFound(err) {
					return
				}
			}
		})
	}
}
