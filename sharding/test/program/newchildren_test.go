package program

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestChildWithoutALabelMovesFirst covers R29 without policies: a child created just before its
// main object was released has no label yet, and is nevertheless at the new shard before the main
// object.
func TestChildWithoutALabelMovesFirst(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	p := c.sharder("none", "--admission=none")
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{}
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	c.create(ring)
	c.lease(ring, "web-0", 600, 0)
	for i := range 30 {
		c.secret(fmt.Sprintf("s-%d", i))
	}
	c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 30}, c.shardsOf(t, ring))
	})
	c.lease(ring, "web-1", 600, 0)
	c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) { assert.NotEmpty(t, c.draining(t, ring)) })

	require.NoError(t, p.Freeze(t.Context()))
	owner := c.draining(t, ring)[0]
	child := c.child(&owner, "new", nil)
	shard := prefix.ShardLabel(ring.Name)
	require.NoError(t, c.Patch(t.Context(), &owner, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+shard+`":null}}}`))))
	require.NoError(t, p.Signal(syscall.SIGCONT))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Equal(t, "web-1", c.reread(t, &owner).Labels[shard])
	}, patience, period)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(child), child))
	assert.Equal(t, "web-1", child.Labels[shard], "the new shard sees the main object without its child")
}

// TestShardsHearOfChildrenBeforeTheseAreLabelled covers R29 for a ring that begins to control a
// resource: until then, its shards may complete hand-overs themselves, and an outdated shard would
// release an object without its children.
func TestShardsHearOfChildrenBeforeTheseAreLabelled(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.sharder("a")
	ring := c.create(c.ring(""))
	configMaps := v1alpha1.GroupResource{Resource: "configmaps"}
	c.lease(ring, "web-0", 600, 0)
	c.change("web-0", `{"metadata":{"annotations":{"`+prefix.ProtocolAnnotation()+`":"`+v1alpha1.Protocol2+`"}}}`)
	c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, v1alpha1.HandoverDirect, c.stored(t, "web-0").Labels[prefix.HandoverLabel()])
	})
	c.update(ring, func(r *v1alpha1.ClusterRing) {
		r.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{configMaps}
	})
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.NotContains(t, c.stored(t, "web-0").Labels, prefix.HandoverLabel())
		assert.Equal(t, ring.Generation, s.ObservedGeneration)
		assert.NotContains(t, s.LabelledResources, configMaps, "the shard has not renewed its Lease since")
	})
	c.renew("web-0", period, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Contains(t, s.LabelledResources, configMaps)
	})

	c.update(ring, func(r *v1alpha1.ClusterRing) { r.Spec.Resources[0].ControlledResources = nil })
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.NotContains(t, s.LabelledResources, configMaps, "the labels are gone")
		assert.Equal(t, v1alpha1.HandoverDirect, c.stored(t, "web-0").Labels[prefix.HandoverLabel()])
	})
}
