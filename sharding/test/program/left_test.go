package program

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestLeftObjectsAreReported covers R31: the sharder counts the objects that a leaving shard has not
// handed over when it ends, by a metric and an event. A shard that hands everything over is not
// counted.
func TestLeftObjectsAreReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{}
	c.balanced(ring, 40, "web-0", "web-1", "web-2")
	left := func(t *assert.CollectT) float64 { return c.scrape(t)["sharder_left_objects_total"+of(ring)] }
	leave := func(name string) {
		c.change(name, `{"metadata":{"annotations":{"`+prefix.LeavingAnnotation()+`":"true"}}}`)
		c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			assert.Equal(t, "leaving", states(s)[name])
		})
	}
	end := func(name string) { c.change(name, `{"spec":{"holderIdentity":""}}`) }

	leave("web-2")
	c.acknowledge(ring, "web-2")
	c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.NotContains(t, c.shardsOf(t, ring), "web-2")
		assert.Empty(t, c.draining(t, ring))
	})
	end("web-2")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, "dead", states(s)["web-2"])
	})

	leave("web-1")
	has := c.shardsOf(t, ring)["web-1"]
	end("web-1")
	c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 40}, c.shardsOf(t, ring))
		assert.InDelta(t, has, left(t), 0)
	})
	e := c.event(ring, "ObjectsLeft")
	assert.Contains(t, e.Note, fmt.Sprintf("shard web-1 ended before it had handed over all its objects (%d left)", has))
	if assert.NotNil(t, e.Related) {
		assert.Equal(t, c.namespace+"/web-1", e.Related.Namespace+"/"+e.Related.Name)
	}
}
