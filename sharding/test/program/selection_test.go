package program

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// Objects of the cluster's own namespaces are assigned only if a ring selects all namespaces.
func TestNamespacesOfTheClusterAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := ownSite(t) // the objects of other tests must not be assigned
	c.sharder("a")
	ring := c.ring("")
	ring.Spec.NamespaceSelector = nil
	some := c.admitting(ring, "web-0")
	all := c.ring("-all")
	all.Spec.NamespaceSelector = &metav1.LabelSelector{}
	c.create(all)
	c.eventually(all, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.installed(t, s)
	})
	c.lease(all, "all-0", 600, 0)
	for _, namespace := range []string{"kube-system", "sharder-system", "default"} {
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			s := secret(namespace, "probe")
			require.NoError(t, c.Create(c.t.Context(), s, client.DryRunAll))
			assert.Equal(t, "all-0", s.Labels[prefix.ShardLabel(all.Name)])
			assert.Equal(t, namespace == "default", s.Labels[prefix.ShardLabel(some.Name)] == "web-0", namespace)
		}, patience, period)
	}
}

// TestClusterScopedObjectsAreAssigned covers a part of F2: a namespace selector does not apply to
// them, except for Namespaces.
func TestClusterScopedObjectsAreAssigned(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "namespace"}}
	ring.Spec.Resources = []v1alpha1.Resource{
		{GroupResource: v1alpha1.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}},
		{GroupResource: v1alpha1.GroupResource{Resource: "namespaces"}},
	}
	c.admitting(ring, "web-0", "web-1")
	label := prefix.ShardLabel(ring.Name)
	for i := range 5 {
		name := fmt.Sprintf("%s:%d", c.namespace, i)
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, c.Create(t.Context(), role, client.DryRunAll))
		assert.Equal(t, placed(ring, "rbac.authorization.k8s.io/ClusterRole//"+name), role.Labels[label])
		selected := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", c.namespace, i), Labels: ring.Spec.NamespaceSelector.MatchLabels}}
		require.NoError(t, c.Create(t.Context(), selected, client.DryRunAll))
		assert.Equal(t, placed(ring, "/Namespace//"+selected.Name), selected.Labels[label])
	}
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-other"}}
	require.NoError(t, c.Create(t.Context(), other, client.DryRunAll))
	assert.NotContains(t, other.Labels, label, "Namespaces are selected by their own labels")
}

// TestTwoRingsOnOneKindActIndependently covers R2.
func TestTwoRingsOnOneKindActIndependently(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one, two := c.admitting(c.ring("-1"), "one-0", "one-1"), c.admitting(c.ring("-2"), "two-0")
	s := secret(c.namespace, "shared")
	c.stores(s)
	of := placed(one, "/Secret/"+c.namespace+"/shared")
	assert.Equal(t, of, s.Labels[prefix.ShardLabel(one.Name)])
	assert.Equal(t, "two-0", s.Labels[prefix.ShardLabel(two.Name)])
	s.Labels = map[string]string{prefix.ShardLabel(two.Name): "two-0"}
	require.NoError(t, c.as("other", "").Update(t.Context(), s))
	assert.Equal(t, of, s.Labels[prefix.ShardLabel(one.Name)])
	require.NoError(t, c.Delete(t.Context(), two))
	c.hasNoPolicies(two)
	assert.Len(t, c.policies(t, one), c.objects())
}
