package program

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// user makes sharders that start from now on run as a user that has only the permissions of a
// ClusterRole.
func (c *cluster) user(role *rbacv1.ClusterRole) {
	c.t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role.Name}},
	}
	c.stores(role, binding)
	c.t.Cleanup(func() {
		for _, o := range []client.Object{binding, role} {
			assert.NoError(c.t, c.Delete(context.WithoutCancel(c.t.Context()), o))
		}
	})
	kubeconfig, err := clientcmd.LoadFromFile(c.kubeconfig)
	require.NoError(c.t, err)
	for _, info := range kubeconfig.AuthInfos {
		info.Impersonate = role.Name
	}
	c.kubeconfig = filepath.Join(c.t.TempDir(), "kubeconfig")
	require.NoError(c.t, clientcmd.WriteToFile(*kubeconfig, c.kubeconfig))
}

// TestMissingRightDelaysNoOther covers R36: a sharder that must not patch Secrets assigns all other
// objects, including objects of the same ring, reports the problem (also R39), and assigns the Secrets once it
// may.
func TestMissingRightDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	all := []string{rbacv1.VerbAll}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "limited-sharder"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces", "events"}, Verbs: all},
		{APIGroups: []string{v1alpha1.GroupVersion.Group, "coordination.k8s.io", "events.k8s.io", "apiextensions.k8s.io", "admissionregistration.k8s.io"}, Resources: all, Verbs: all},
	}}
	admin := c.kubeconfig
	c.user(role)
	ring := c.ring("")
	ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "configmaps"}})
	c.create(ring)
	other := c.ring("-other")
	other.Spec.Resources = ring.Spec.Resources[1:]
	c.create(other)
	for i := range 20 {
		name := string(rune('a' + i))
		c.child(c.secret(name), name, nil)
	}
	p := c.sharder("a", "--admission=none", "--sync-period=5s")
	c.kubeconfig = admin
	c.lease(ring, "web-0", 600, 0)
	c.lease(other, "other-0", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 20}, c.childrenOf(collect, ring))
		assert.Equal(collect, map[string]int{"other-0": 20}, c.childrenOf(collect, other))
		assert.Equal(collect, map[string]int{"": 20}, c.shardsOf(collect, ring))
		assert.EqualValues(collect, 20, s.Unassigned)
		assert.True(collect, meta.IsStatusConditionFalse(s.Conditions, "Balanced"))
		assert.Equal(collect, "MovesFailing", reasonOf(s, "Balanced"))
		assert.True(collect, meta.IsStatusConditionTrue(c.status(collect, other).Conditions, "Balanced"))
		permissions := meta.FindStatusCondition(s.Conditions, "PermissionsGranted")
		require.NotNil(collect, permissions)
		assert.Equal(collect, "Missing", permissions.Reason)
		assert.Contains(collect, permissions.Message, "may not patch secrets")
		assert.True(collect, meta.IsStatusConditionTrue(c.status(collect, other).Conditions, "PermissionsGranted"))
	})
	require.EventuallyWithT(t, func(collect *assert.CollectT) { // the status is written first
		assert.Regexp(collect, `secrets.*is forbidden: User \S+limited-sharder\S+ cannot patch resource`, p.Output())
	}, patience, period)

	late := c.child(nil, "late", nil)
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		found := &corev1.ConfigMap{}
		require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(late), found))
		assert.Equal(collect, "web-0", found.Labels[prefix.ShardLabel(ring.Name)], "a new object of another resource does not wait, either")
	})

	role.Rules[0].Verbs = append(role.Rules[0].Verbs, "patch")
	require.NoError(t, c.Update(t.Context(), role))
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 20}, c.shardsOf(collect, ring))
		assert.True(collect, meta.IsStatusConditionTrue(s.Conditions, "Balanced"))
		assert.True(collect, meta.IsStatusConditionTrue(s.Conditions, "PermissionsGranted"))
	})
}
