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

// The API server first checks the precondition of the write that removes the last finalizer, and
// deletes the Node in a separate step. If two users keep editing at that time, an edit soon comes
// between the two.
func TestEditWhileANodeIsLetGoIsSaved(t *testing.T) {
	c := newCluster(t)
	const most = 100 // nodes
	for i := range most {
		name := c.name(fmt.Sprintf("node-%d", i))
		edits := &editors{cluster: c, name: name}
		release := &faults.Race{Calls: faults.Calls{Verb: faults.Patch, Kind: "Node", Name: name, Skip: 1}, First: edits.begin} // skip the patch that adds the finalizer
		stop := c.process(t, setup{protects: true, faults: []faults.Fault{release}})
		last := c.lastOf(t, c.protected(t, name, set{"rack": "r0"}))
		require.EventuallyWithT(t, func(ct *assert.CollectT) { assert.Equal(ct, last.Labels, c.savedLabels(t, name)) }, patience, tick)
		stop()
		edits.Wait()
		if c.record(t, name).Revision.String() == last.ResourceVersion {
			return // an edit came between the two steps
		}
	}
	require.FailNow(t, "no edit came between")
}

// lastOf deletes a protected node and returns its last state according to a watch.
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

// begin makes each of them edit the node a few times, as fast as possible.
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
