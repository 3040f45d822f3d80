package program

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestControllerRingIsMirrored covers R46: the mirror follows its ControllerRing, keeps the
// settings that users have made on it, and is deleted with it, together with the labels of its
// objects.
func TestControllerRingIsMirrored(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := c.controllerRing("", v1alpha1.GroupResource{Resource: "configmaps"})
	ring := r.mirror()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(ring), ring))
	}, patience, period)
	assert.Equal(t, r.read(t).GetUID(), metav1.GetControllerOf(ring).UID)
	assert.Equal(t, v1alpha1.Shards{Namespace: "*"}, ring.Spec.Shards)
	assert.Equal(t, v1alpha1.FenceNone, ring.Spec.Fence)
	assert.Equal(t, &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.namespace}}, ring.Spec.NamespaceSelector)
	assert.Equal(t, []v1alpha1.Resource{{
		GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Key: v1alpha1.KeyName, ControlledResources: []v1alpha1.GroupResource{{Resource: "configmaps"}},
	}}, ring.Spec.Resources)

	c.update(ring, func(ring *v1alpha1.ClusterRing) {
		ring.Spec.Handover.MaxConcurrentMoves, ring.Spec.Shards.ServiceAccounts = 7, []string{"operator"}
	})
	r.change(`{"spec":{"resources":[{"group":"","resource":"secrets"},{"group":"","resource":"services"}]}}`)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(ring), ring))
		assert.Len(collect, ring.Spec.Resources, 2)
		assert.Empty(collect, ring.Spec.Resources[0].ControlledResources)
		assert.EqualValues(collect, 7, ring.Spec.Handover.MaxConcurrentMoves)
		assert.Equal(collect, []string{"operator"}, ring.Spec.Shards.ServiceAccounts)
		assert.Equal(collect, r.read(collect).GetGeneration(), r.foreignStatus(collect).ObservedGeneration)
	}, patience, period)

	r.change(`{"spec":{"resources":[{"group":"","resource":"secrets","controlledResources":[{"group":"","resource":"secrets"}]}]}}`)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		ready := meta.FindStatusCondition(r.foreignStatus(collect).Conditions, "Ready")
		require.NotNil(collect, ready)
		assert.Equal(collect, "InvalidSpec", ready.Reason)
		assert.Contains(collect, ready.Message, "both a main resource and a controlled one")
	}, patience, period)
	c.eventOf("ControllerRing", r.name, "InvalidSpec")
	r.change(`{"spec":{"resources":[{"group":"","resource":"secrets"}]}}`)

	r.start(c.namespace, "web-0", 600)
	s := c.secret("s")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, map[string]int{"web-0": 1}, r.shardsOf(collect))
		assert.True(collect, meta.IsStatusConditionTrue(r.foreignStatus(collect).Conditions, "Ready"))
	}, patience, period)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(ring), ring))
	assert.LessOrEqual(t, ring.Generation, int64(4), "it is written only when something changes")
	require.NoError(t, c.Delete(t.Context(), r.read(t)))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.True(collect, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(ring), ring)))
	}, patience, period)
	assert.Empty(t, c.reread(t, s).Labels)
	c.hasNoPolicies(ring)
}

// change applies a merge patch to the ControllerRing.
func (r *foreignRing) change(patch string) {
	r.t.Helper()
	require.NoError(r.t, r.Patch(r.t.Context(), r.read(r.t), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// A ControllerRing whose name is taken reports that, and is mirrored once the name is free.
func TestForeignClusterRingIsNotOverwritten(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ours := c.create(c.ring(""))
	r := c.controllerRing("")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		ready := meta.FindStatusCondition(r.foreignStatus(collect).Conditions, "Ready")
		require.NotNil(collect, ready)
		assert.Equal(collect, "NameConflict", ready.Reason)
		assert.Equal(collect, metav1.ConditionFalse, ready.Status)
	}, patience, period)
	c.eventOf("ControllerRing", r.name, "NameConflict")
	found := &v1alpha1.ClusterRing{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(ours), found))
	assert.Equal(t, ours.Spec, found.Spec)
	assert.Empty(t, found.OwnerReferences)
	require.NoError(t, c.Delete(t.Context(), ours))
	c.eventually(r.mirror(), func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(ours), found))
		assert.Equal(collect, "*", found.Spec.Shards.Namespace)
	})
}

// TestOlderLeaseOfANameCounts covers R46 (F7: upstream's protocol distinguishes shards only by
// name). The other Lease counts if it is the only one that a shard holds, because the name is not
// dead then.
func TestOlderLeaseOfANameCounts(t *testing.T) {
	t.Parallel()
	c, elsewhere := newCluster(t), newCluster(t)
	r := c.controllerRing("")
	ring := r.mirror()
	older := r.start(c.namespace, "web", 600)
	require.Eventually(t, func() bool { return time.Since(c.stored(t, "web").CreationTimestamp.Time) > 2*time.Second }, patience, period)
	r.lease(elsewhere.namespace, "web")
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]string{"web": "ready"}, states(s))
		accepted := meta.FindStatusCondition(s.Conditions, "ShardsAccepted")
		require.NotNil(collect, accepted)
		assert.Equal(collect, "NameConflict", accepted.Reason)
		assert.Contains(collect, accepted.Message, elsewhere.namespace)
		assert.Equal(collect, map[string]int{"web": 1024}, shares(s, now))
	})
	c.event(ring, "NameConflict")
	before := c.status(t, ring).Table
	older.release(t)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.True(collect, meta.IsStatusConditionTrue(s.Conditions, "ShardsAccepted"))
		assert.Equal(collect, map[string]string{"web": "ready"}, states(s))
		assert.Equal(collect, before.Slots, s.Table.Slots)
	})
}

// lease writes a long-lived Lease with the given holder.
func (r *foreignRing) lease(namespace, name string) {
	r.t.Helper()
	now := metav1.NowMicro()
	require.NoError(r.t, r.Create(r.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{foreign + "/controllerring": r.name}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(600)), RenewTime: &now},
	}, client.FieldOwner("shard")))
}

// Objects that upstream's sharder has drained have a drain label without a target. They are soon at
// a shard.
func TestForeignDrainsAreTakenOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := c.controllerRing("")
	r.lease(c.namespace, "web-0")
	ring := r.mirror()
	s := c.secret("s")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, map[string]int{"web-0": 1}, r.shardsOf(collect))
	}, patience, period)
	asked := []byte(`{"metadata":{"labels":{"` + foreignDrain(r.name) + `":"true"}}}`)
	require.NoError(t, c.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, asked)))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, map[string]string{foreignShard(ring.Name): "web-0"}, c.reread(collect, s).Labels)
	}, patience, period)

	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.installed(collect, s)
	})
	answered := secret(c.namespace, "answered")
	require.NoError(t, c.Create(t.Context(), answered))
	shard := c.as("shard", "web-0")
	require.EventuallyWithT(t, func(collect *assert.CollectT) { // like a shard that responds before the sharder observes the object
		require.NoError(collect, c.Patch(t.Context(), answered, client.RawPatch(types.MergePatchType, asked)))
		release := []byte(`{"metadata":{"resourceVersion":"` + answered.ResourceVersion + `","labels":{"` + foreignDrain(r.name) + `":null,"` + foreignShard(r.name) + `":null}}}`)
		require.NoError(collect, shard.Patch(t.Context(), answered, client.RawPatch(types.MergePatchType, release)))
	}, patience, time.Millisecond)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, map[string]string{foreignShard(ring.Name): "web-0"}, c.reread(collect, answered).Labels)
	}, patience, period)
}

// Such a ring can be deleted, however. With --compat, the sharder exits if the CRD of
// ControllerRings is missing.
func TestRingWithShardsAnywhereIsIgnoredWithoutCompat(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	assert.Contains(t, c.failing("compat", "--compat=timebertt").Output(), "does not serve ControllerRings")
	c.sharder("a")
	ring := c.ring("")
	ring.Spec.Shards.Namespace = "*"
	c.create(ring)
	r := &foreignRing{cluster: c, name: ring.Name}
	r.lease(c.namespace, "web-0")
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		ready := meta.FindStatusCondition(s.Conditions, "Ready")
		require.NotNil(collect, ready)
		assert.Equal(collect, "InvalidSpec", ready.Reason)
		assert.Contains(collect, ready.Message, "--compat=timebertt")
	})
	c.event(ring, "InvalidSpec")
	other := c.create(c.ring("-other"))
	c.lease(other, "web-0-other", 600, 0)
	s := c.secret("s")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, map[string]string{prefix.ShardLabel(other.Name): "web-0-other"}, c.reread(collect, s).Labels)
	}, patience, period)
	assert.Nil(t, c.status(t, ring).Table)
	assert.Empty(t, c.policies(t, ring))
	assert.NotContains(t, c.stored(t, "web-0").Labels, foreign+"/state")
	require.NoError(t, c.Delete(t.Context(), ring))
	require.Eventually(t, func() bool { return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(ring), ring)) }, patience, period)
}

// Its effects are undone with the right keys.
func TestMirrorOfAFormerSharderCanBeDeletedWithoutCompat(t *testing.T) {
	t.Parallel()
	c := ownSite(t) // other tests must not find the CRD of ControllerRings
	require.NoError(t, installControllerRings(t.Context(), c.config()))
	first := c.sharder("a", "--compat=timebertt")
	r := c.controllerRing("")
	r.lease(c.namespace, "web-0")
	s := c.secret("s")
	back := c.controllerRing("-back")
	back.lease(c.namespace, "back-0")
	ring := r.mirror()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, map[string]int{"web-0": 1}, r.shardsOf(collect))
		assert.Equal(collect, map[string]int{"back-0": 1}, back.shardsOf(collect))
		assert.Len(collect, c.policies(collect, ring), c.objects())
		assert.Len(collect, c.policies(collect, back.mirror()), c.objects())
	}, patience, period)
	require.NoError(t, first.Stop(stopTimeout))
	c.leave(back.mirror())
	assert.Equal(t, map[string]int{"back-0": 1}, back.shardsOf(t), "the next sharder finds the labels")
	c.sharder("b")
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, "InvalidSpec", reasonOf(s, "Ready"))
	})
	assert.Equal(t, map[string]int{"web-0": 1}, r.shardsOf(t), "it is left as it is")
	assert.Len(t, c.policies(t, ring), c.objects())
	require.NoError(t, c.Delete(t.Context(), ring))
	require.Eventually(t, func() bool { return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(ring), ring)) }, patience, period)
	assert.Equal(t, map[string]string{foreignShard(back.name): "back-0"}, c.reread(t, s).Labels)
	c.hasNoPolicies(ring)
}

// leave removes a ring as if its user returned to another sharder: its labels remain.
func (c *cluster) leave(ring *v1alpha1.ClusterRing) {
	c.t.Helper()
	for _, o := range c.policies(c.t, ring) {
		require.NoError(c.t, c.Delete(c.t.Context(), o))
	}
	c.update(ring, func(ring *v1alpha1.ClusterRing) { ring.Finalizers = nil })
	require.NoError(c.t, c.Delete(c.t.Context(), ring))
}
