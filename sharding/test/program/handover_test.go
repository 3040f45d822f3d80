package program

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestHandoverDoesNotReadMainObjects covers step 3 of protocol 2: a resync finds the children of
// objects that must move at their former shard, but does not read their main objects once more.
func TestHandoverDoesNotReadMainObjects(t *testing.T) {
	t.Parallel()
	const objects = 60
	c := newSite(t)
	proxy := c.behindProxy()
	c.sharder("a", "--admission=none")
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{}
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	c.balanced(ring, objects, "web-0")
	for _, s := range c.secrets(t) {
		c.child(&s, s.Name, nil)
	}
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": objects}, c.childrenOf(collect, ring))
		assert.Equal(collect, "Balanced", reasonOf(s, "Balanced"))
	})
	seen := &counter{counts: func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/secrets/")
	}}
	defer proxy.Inject(seen)()
	began := time.Now()
	c.lease(ring, "web-1", 600, 0)
	c.acknowledge(ring, "web-0")
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(collect, ring, s)
		assert.Len(collect, c.shardsOf(collect, ring), 2)
		assert.Equal(collect, c.shardsOf(collect, ring), c.childrenOf(collect, ring))
	})
	moved := c.shardsOf(t, ring)["web-1"]
	require.Positive(t, moved)
	if time.Since(began) < 10*time.Second { // after which the sharder reads an object whose move it has not seen to end
		assert.Less(t, seen.count.Load(), int64(moved)/2)
	}
}
