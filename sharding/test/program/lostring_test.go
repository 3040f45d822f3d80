package program

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestLabelsOfALostRingGo covers the advice of sharding/docs/install.md for a ring that was lost
// while no sharder ran: a ring of its name removes the labels that it has left.
func TestLabelsOfALostRingGo(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	only := c.sharder("a")
	lost := func() *v1alpha1.ClusterRing {
		ring := c.ring("")
		ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
		return ring
	}
	ring := c.admitting(lost(), "web-0")
	for i := range 10 {
		c.child(c.secret(fmt.Sprintf("s-%d", i)), fmt.Sprintf("c-%d", i), nil)
	}
	has := func(t require.TestingT, shard string) {
		assert.Equal(t, map[string]int{shard: 10}, c.shardsOf(t, ring))
		assert.Equal(t, map[string]int{shard: 10}, c.childrenOf(t, ring))
	}
	c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) { has(t, "web-0") })
	require.NoError(t, only.Stop(stopTimeout))
	require.NoError(t, c.Delete(t.Context(), ring))
	c.update(ring, func(r *v1alpha1.ClusterRing) { r.Finalizers = nil })
	has(t, "web-0")

	again := c.create(lost())
	c.sharder("b")
	c.eventually(again, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.True(t, meta.IsStatusConditionTrue(s.Conditions, "Ready"))
	})
	require.NoError(t, c.Delete(t.Context(), again))
	require.EventuallyWithT(t, func(t *assert.CollectT) { has(t, "") }, patience, period)
	c.hasNoPolicies(again)
}
