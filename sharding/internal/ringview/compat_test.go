package ringview_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ringview"
	"nodekeeper.dev/sharding/slots"
)

// TestRingsWithShardsAnywhereHaveTheirOwnKeys: --compat=timebertt creates such rings, whose shards
// know only the keys of that project. The fake client suffices, as nothing here depends on the API
// server.
func TestRingsWithShardsAnywhereHaveTheirOwnKeys(t *testing.T) {
	t.Parallel()
	const prefix = v1alpha1.TimeberttPrefix
	secrets := v1alpha1.GroupResource{Resource: "secrets"}
	ring := &v1alpha1.ClusterRing{
		ObjectMeta: metav1.ObjectMeta{Name: "checksum"},
		Spec: v1alpha1.ClusterRingSpec{
			Shards: v1alpha1.Shards{Namespace: v1alpha1.AnyNamespace}, Resources: []v1alpha1.Resource{{GroupResource: secrets, Key: v1alpha1.KeyName}},
		},
		Status: v1alpha1.ClusterRingStatus{
			Members: []v1alpha1.Member{{Name: "web-0", State: "ready", Slots: slots.Count}},
			Table:   &v1alpha1.Table{Generation: 1, Shards: []string{"web-0"}, Slots: make([]int32, slots.Count)},
		},
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web-0", Labels: map[string]string{prefix.RingLabel(): ring.Name}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("web-0")},
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "s1", Labels: map[string]string{prefix.ShardLabel(ring.Name): "web-0"}},
	}
	known := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(known))
	require.NoError(t, v1alpha1.AddToScheme(known))
	c := &ringview.Cluster{
		Client: fake.NewClientBuilder().WithScheme(known).WithObjects(ring, lease, secret).Build(), Prefix: v1alpha1.DefaultPrefix, SharderNamespace: "sharder-system",
	}

	shown, err := c.Ring(t.Context(), ring.Name)
	require.NoError(t, err)
	require.Len(t, shown.Members, 1)
	assert.Equal(t, "web-0", shown.Members[0].Holder)
	assert.Equal(t, v1alpha1.Protocol1, shown.Members[0].Protocol)

	mapping := &meta.RESTMapping{
		Resource: corev1.SchemeGroupVersion.WithResource("secrets"), GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Scope: meta.RESTScopeNamespace,
	}
	_, owners, err := c.Owners(t.Context(), ring.Name, mapping, secret.Namespace, secret.Name)
	require.NoError(t, err)
	require.Len(t, owners, 1)
	assert.Equal(t, ringview.Assigned, owners[0].State)
	assert.Equal(t, "web-0", owners[0].Owner)
	assert.True(t, owners[0].Agrees)
}
