package program

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// The annotations of an object are limited to 256 KiB. An object with children that is close to the
// limit moves without the children annotation; otherwise it would never be reconciled.
func TestObjectWithoutRoomForTheNoteMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{}
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	c.create(ring)
	c.lease(ring, "web-0", 600, 0)
	const key = "example.com/large"
	large := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "large", Annotations: map[string]string{key: strings.Repeat("x", 256<<10-len(key))}}}
	c.stores(large)
	child := c.child(large, "child", nil)
	shard := prefix.ShardLabel(ring.Name)
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, "web-0", c.reread(collect, large).Labels[shard])
		assert.Equal(collect, map[string]int{"web-0": 1}, c.childrenOf(collect, ring))
	})
	c.lease(ring, "web-1", 600, 0)
	c.acknowledge(ring, "web-0")
	c.change("web-0", `{"metadata":{"annotations":{"`+prefix.LeavingAnnotation()+`":"true"}}}`)
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, "web-1", c.reread(collect, large).Labels[shard])
	})
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(child), child))
	assert.Equal(t, "web-1", child.Labels[shard])
}
