package program

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// child returns a ConfigMap with one owner.
func child(namespace string, owner metav1.OwnerReference) *corev1.ConfigMap {
	owner.UID = "not-looked-at"
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "child-", OwnerReferences: []metav1.OwnerReference{owner}}}
}

// TestChildrenFollowTheirController covers R19 and F17: an object of another controller is never
// labelled.
func TestChildrenFollowTheirController(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Shards.ServiceAccounts = []string{"operator"}
	configMaps := []v1alpha1.GroupResource{{Resource: "configmaps"}}
	ring.Spec.Resources[0].ControlledResources = configMaps
	ring.Spec.Resources = append(ring.Spec.Resources,
		v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}, ControlledResources: configMaps},
		v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "services"}})
	c.admitting(ring, "web-0", "web-1")
	owner := c.owned(ring, "web-0", ring.Spec.Resources[0])
	role := c.owned(ring, "web-0", ring.Spec.Resources[1])
	controlled := func(version, kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, Controller: new(true)}
	}
	shard := func(pod string) client.Client { return c.as(c.account("operator"), pod) }
	for name, tc := range map[string]struct {
		owner  metav1.OwnerReference
		caller client.Client
		want   string
	}{
		"of a main object":                      {controlled("v1", "Secret", owner), c, "web-0"},
		"whatever the version":                  {controlled("rbac.authorization.k8s.io/v9", "ClusterRole", role), c, "web-0"},
		"of a shard":                            {controlled("v1", "Secret", owner), shard("web-1"), "web-1"},
		"of a shard that is not in the table":   {controlled("v1", "Secret", owner), shard("web-9"), "web-0"},
		"of an account without a pod":           {controlled("v1", "Secret", owner), shard(""), "web-0"},
		"of a pod of another account":           {controlled("v1", "Secret", owner), c.as(c.account("other"), "web-1"), "web-0"},
		"of a foreign kind":                     {controlled("v1", "ConfigMap", owner), shard("web-1"), ""},
		"of a kind of that name":                {controlled("example.com/v1", "Secret", owner), c, ""},
		"of a main object that controls others": {controlled("v1", "Service", owner), c, ""},
		"of an owner that does not control it":  {metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: owner}, c, ""},
		"of an owner with an endless name":      {controlled("v1", "Secret", strings.Repeat("n", 100_000)), c, ""},
	} {
		o := child(c.namespace, tc.owner)
		require.NoError(t, tc.caller.Create(t.Context(), o), name)
		assert.Equal(t, tc.want, o.Labels[prefix.ShardLabel(ring.Name)], name)
	}
}

// Objects of the same namespace, or with the same value of a label, are at the same shard, and so
// are their children.
func TestKeysOfNamespacesAndLabels(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	byLabel := v1alpha1.Resource{
		GroupResource: v1alpha1.GroupResource{Resource: "services"}, Key: v1alpha1.KeyLabel, KeyLabel: "example.com/project",
		ControlledResources: []v1alpha1.GroupResource{{Resource: "configmaps"}},
	}
	byNamespace := v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "serviceaccounts"}, Key: v1alpha1.KeyNamespace}
	ring.Spec.Resources = append(ring.Spec.Resources, byLabel, byNamespace)
	c.admitting(ring, "web-0", "web-1", "web-2")
	label := prefix.ShardLabel(ring.Name)
	for i := range 5 {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: "a-"}}
		project := fmt.Sprintf("project-%d", i)
		reference := metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "any", Controller: new(true)}
		labelled, bare := child(c.namespace, reference), child(c.namespace, reference)
		labelled.Labels = map[string]string{byLabel.KeyLabel: project}
		c.stores(account, labelled, bare)
		assert.Equal(t, placed(ring, c.namespace), account.Labels[label])
		assert.Equal(t, placed(ring, project), labelled.Labels[label])
		assert.Equal(t, placed(ring, "/Service/"+c.namespace+"/any"), bare.Labels[label])
	}
}
