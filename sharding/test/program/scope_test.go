package program

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/controlplane"
)

// TestFewNamespacesAreWatchedOneByOne covers R22: with up to ten namespaces, the sharder does not
// receive the objects of other namespaces. Namespaces that join and leave have their objects
// assigned all the same.
func TestFewNamespacesAreWatchedOneByOne(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	proxy, seen := c.behindProxy(), &reads{}
	proxy.Inject(seen)
	ring := c.ring("")
	ring.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"ring": ring.Name}}
	names := []string{c.namespace}
	for range 10 {
		names = append(names, controlplane.Namespace(t, c))
	}
	c.joins(ring, names[0])
	c.sharder("a")
	c.admitting(ring, "web-0")
	var early []*corev1.Secret

	early = append(early, c.isAssignedByWatch(ring, names[0]))
	assert.Equal(t, names[:1], watchedFor(ring, seen.take()))

	early = append(early, c.createsWithoutShard(ring, names[1]))
	c.joins(ring, names[1])
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, "web-0", c.reread(collect, early[1]).Labels[prefix.ShardLabel(ring.Name)], "it was there before its namespace joined")
	})
	var since []string
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		since = append(since, seen.take()...)
		assert.ElementsMatch(collect, names[:2], watchedFor(ring, since))
	})

	c.joins(ring, names[2:]...)
	early = append(early, c.isAssignedByWatch(ring, names[10]))
	assert.Contains(t, watchedFor(ring, seen.take()), "", "eleven have one watch")

	c.parts(names[:10]...)
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		for i, want := range []string{"", "", "web-0"} {
			assert.Equal(collect, want, c.reread(collect, early[i]).Labels[prefix.ShardLabel(ring.Name)])
		}
	})
	c.isAssignedByWatch(ring, names[10])
	last := watchedFor(ring, seen.take())
	assert.Contains(t, last, names[10])
	assert.NotContains(t, last, "")
}

// joins adds the label to namespaces that the ring selects.
func (c *cluster) joins(ring *v1alpha1.ClusterRing, names ...string) {
	c.t.Helper()
	c.selects(fmt.Sprintf("%q", ring.Name), names)
}

// parts removes that label.
func (c *cluster) parts(names ...string) {
	c.t.Helper()
	c.selects("null", names)
}

func (c *cluster) selects(value string, names []string) {
	c.t.Helper()
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(c.t, c.Patch(c.t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"ring":`+value+`}}}`))))
	}
}

// createsWithoutShard creates a Secret that no policy assigns, because it has no name yet.
func (c *cluster) createsWithoutShard(ring *v1alpha1.ClusterRing, namespace string) *corev1.Secret {
	c.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "s-"}}
	c.stores(s)
	require.Empty(c.t, s.Labels[prefix.ShardLabel(ring.Name)])
	return s
}

// isAssignedByWatch creates a Secret that no policy assigns, and waits until the sharder does.
func (c *cluster) isAssignedByWatch(ring *v1alpha1.ClusterRing, namespace string) *corev1.Secret {
	c.t.Helper()
	s := c.createsWithoutShard(ring, namespace)
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, "web-0", c.reread(collect, s).Labels[prefix.ShardLabel(ring.Name)])
	})
	return s
}

// watchedFor returns the namespaces in which objects without a live shard were read; "" means all.
func watchedFor(ring *v1alpha1.ClusterRing, all []string) (namespaces []string) {
	for _, read := range all {
		path, selector, _ := strings.Cut(read, " ")
		if !strings.HasPrefix(selector, prefix.ShardLabel(ring.Name)+" notin") {
			continue
		}
		namespace := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(path, "/api/v1"), "/namespaces/"), "/secrets")
		if !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
}
