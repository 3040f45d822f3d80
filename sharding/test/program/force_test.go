package program

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// forced returns a ring that takes objects from shards that do not release them within a second. It
// is not created yet.
func (c *cluster) forced() *v1alpha1.ClusterRing {
	ring := c.ring("")
	ring.Spec.Shards.ServiceAccounts, ring.Spec.Fence = []string{account}, v1alpha1.FenceDeny
	ring.Spec.Handover = v1alpha1.Handover{DrainTimeout: &metav1.Duration{Duration: time.Second}, OnTimeout: v1alpha1.Force, Settle: &metav1.Duration{}}
	return ring
}

// TestForcedMove covers the rest of R30, and R34: with onTimeout Force, an object that is not
// released in time is assigned to the other shard. A shard that was frozen until then, and wakes up
// with a request in hand, changes nothing of the object any more.
func TestForcedMove(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.permit()
	ring := c.balanced(c.forced(), 30, "web-0")
	frozen, next := c.stolen("web-0"), c.stolen("web-1")
	late := client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"by":"frozen"}}`))
	for _, s := range c.secrets(t) {
		require.NoError(t, frozen.Patch(t.Context(), &s, late))
	}
	c.lease(ring, "web-1", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Len(collect, shares(s, now), 2)
		c.inPlace(collect, ring, s)
		assert.Len(collect, c.shardsOf(collect, ring), 2)
	})
	c.event(ring, "Forced")
	c.counts(ring, "secrets", "forced")
	moved := 0
	for _, s := range c.secrets(t) {
		err := frozen.Patch(t.Context(), s.DeepCopy(), late)
		if s.Labels[prefix.ShardLabel(ring.Name)] == "web-0" {
			require.NoError(t, err)
			continue
		}
		moved++
		require.True(t, apierrors.IsForbidden(err), err)
		require.True(t, apierrors.IsForbidden(frozen.Delete(t.Context(), s.DeepCopy())))
		require.NoError(t, next.Patch(t.Context(), &s, client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"by":"next"}}`))))
	}
	require.Positive(t, moved)
}

// TestForcedMoveOfParents covers R29 and R30: when Force takes an object, its children move first,
// and the object is assigned with their versions.
func TestForcedMoveOfParents(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.permit()
	ring := c.forced()
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	c.balanced(ring, 10, "web-0")
	c.stolen("web-0") // creates its pod
	for _, s := range c.secrets(t) {
		c.stores(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: s.Name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Secret", Name: s.Name, UID: s.UID, Controller: new(true),
		}}}})
	}
	c.lease(ring, "web-1", 600, 0)
	c.event(ring, "Forced")
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(collect, ring, s)
		assert.Len(collect, c.shardsOf(collect, ring), 2)
	})
	c.counts(ring, "secrets", "forced")
	for _, s := range c.secrets(t) {
		at := s.Labels[prefix.ShardLabel(ring.Name)]
		of := &corev1.ConfigMap{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(&s), of))
		assert.Equal(t, at, of.Labels[prefix.ShardLabel(ring.Name)], s.Name)
		if at == "web-1" {
			assert.Contains(t, s.Annotations[prefix.ChildrenAnnotation(ring.Name)], of.ResourceVersion, s.Name)
		}
	}
}

// TestForceWaitsForItsFence covers R30 and R34: without a fence that works, Force takes nothing
// from a live shard, and the ring reports that. It acts as soon as there is one.
func TestForceWaitsForItsFence(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	foreign := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sharding-fence-" + c.ring("").Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "foreign", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit},
		},
	}
	c.stores(foreign)
	c.permit()
	c.stolen("web-0") // creates its pod
	ring := c.balanced(c.forced(), 30, "web-0")
	c.lease(ring, "web-1", 600, 0)
	c.event(ring, "ForceWaits")
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, "DrainTimeout", reasonOf(s, "Balanced"))
		ready := meta.FindStatusCondition(s.Conditions, "Ready")
		require.NotNil(collect, ready)
		assert.Contains(collect, ready.Message, "onTimeout Force waits for the fence: see condition FenceInstalled")
		assert.Equal(collect, map[string]int{"web-0": 30}, c.shardsOf(collect, ring))
	})
	require.NoError(t, c.Delete(t.Context(), foreign))
	c.hasFence(ring, metav1.ConditionTrue, "Installed")
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(collect, ring, s)
		assert.Len(collect, c.shardsOf(collect, ring), 2)
	})
}
