package program

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// balanced creates a ring with existing shards, so that nothing moves between them, and n Secrets,
// and waits until these are in place.
func (c *cluster) balanced(ring *v1alpha1.ClusterRing, n int, shards ...string) *v1alpha1.ClusterRing {
	c.t.Helper()
	for _, name := range shards {
		c.lease(ring, name, 600, 0)
	}
	for i := range n {
		c.secret(fmt.Sprintf("s-%d", i))
	}
	c.create(ring)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(t, ring, s)
		assert.Len(t, shares(s, now), len(shards))
	})
	return ring
}

// TestRollingUpdateMovesEachObjectOnce covers R13 (F4: upstream moves about 1.5 N objects): each
// new shard joins before an old one leaves.
func TestRollingUpdateMovesEachObjectOnce(t *testing.T) {
	t.Parallel()
	const objects = 60
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{Duration: 10 * time.Minute} // a join within this time waits for another shard to leave
	c.balanced(ring, objects, "old-0", "old-1", "old-2")
	generation := c.status(t, ring).Table.Generation
	moves := c.countMoves(ring)
	for i := range 3 {
		old, replacement := fmt.Sprintf("old-%d", i), fmt.Sprintf("new-%d", i)
		c.lease(ring, replacement, 600, 0)
		c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			assert.Equal(t, "ready", states(s)[replacement])
		})
		c.change(old, `{"spec":{"holderIdentity":""}}`)
		c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			assert.NotContains(t, s.Table.Shards, old)
			assert.Contains(t, shares(s, now), replacement)
			c.inPlace(t, ring, s)
		})
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) { assert.GreaterOrEqual(collect, moves(), objects) }, patience, period)
	assert.LessOrEqual(t, moves(), objects*105/100)
	assert.NotContains(t, c.shardsOf(t, ring), "")
	assert.LessOrEqual(t, c.status(t, ring).Table.Generation, generation+6, "a join is seen before, and each end is one change")
}

// TestRollingUpdateOfSlowPodsMovesEachObjectOnce is the same with pods that take longer than the
// settle time to be ready. The first one shows that its shard gets nothing before.
func TestRollingUpdateOfSlowPodsMovesEachObjectOnce(t *testing.T) {
	t.Parallel()
	const objects, settle = 60, 20 * time.Second // longer than a machine stalls between two of the steps below
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{Duration: settle}
	c.balanced(ring, objects, "old-0", "old-1", "old-2")
	moves := c.countMoves(ring)
	for i := range 3 {
		old, replacement := fmt.Sprintf("old-%d", i), fmt.Sprintf("new-%d", i)
		setReady := c.pod(replacement)
		c.lease(ring, replacement, 600, 0)
		c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			assert.Equal(t, "ready", states(s)[replacement])
		})
		for begin := time.Now(); i == 0 && time.Since(begin) < settle+5*time.Second; time.Sleep(period) {
			require.NotContains(t, shares(c.status(t, ring), now), replacement, "its pod is not ready")
		}
		setReady()
		c.change(old, `{"spec":{"holderIdentity":""}}`)
		c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) { c.inPlace(t, ring, s) })
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) { assert.GreaterOrEqual(collect, moves(), objects) }, patience, period)
	assert.LessOrEqual(t, moves(), objects*105/100)
}

// pod creates a pod that is not ready, and returns a function that makes it ready.
func (c *cluster) pod(name string) (setReady func()) {
	c.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "default"}}
	require.NoError(c.t, client.IgnoreAlreadyExists(c.Create(c.t.Context(), account)))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "shard", Image: "shard"}}},
	}
	require.NoError(c.t, c.Create(c.t.Context(), pod))
	return func() {
		c.t.Helper()
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		require.NoError(c.t, c.Status().Update(c.t.Context(), pod))
	}
}

// countMoves counts how often a Secret moves from one shard to another from now on.
func (c *cluster) countMoves(ring *v1alpha1.ClusterRing) (count func() int) {
	c.t.Helper()
	watching, err := client.NewWithWatch(c.config(), client.Options{})
	require.NoError(c.t, err)
	w, err := watching.Watch(c.t.Context(), &corev1.SecretList{}, client.InNamespace(c.namespace))
	require.NoError(c.t, err)
	c.t.Cleanup(w.Stop)
	var mu sync.Mutex
	moves, at := 0, map[types.UID]string{}
	key := prefix.ShardLabel(ring.Name)
	go func() {
		for e := range w.ResultChan() {
			s, ok := e.Object.(*corev1.Secret)
			if !ok || s.Labels[key] == "" {
				continue
			}
			if before := at[s.UID]; before != "" && before != s.Labels[key] {
				mu.Lock()
				moves++
				mu.Unlock()
			}
			at[s.UID] = s.Labels[key]
		}
	}()
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return moves
	}
}

// TestMisplacedObjectIsRepaired covers R24: no watch covers an object at the wrong live shard, but
// the next resync finds it.
func TestMisplacedObjectIsRepaired(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.balanced(c.ring(""), 20, "web-0", "web-1")
	key := prefix.ShardLabel(ring.Name)
	moved := c.secrets(t)[0]
	wrong := map[string]string{"web-0": "web-1", "web-1": "web-0"}[moved.Labels[key]]
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":"`+wrong+`"}}}`))
	require.NoError(t, c.Patch(t.Context(), &moved, patch))
	c.acknowledge(ring, wrong)
	c.update(ring, func(r *v1alpha1.ClusterRing) { r.Spec.Handover.MaxConcurrentMoves = 99 })
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(collect, ring, s)
		balance := meta.FindStatusCondition(s.Conditions, "Balanced")
		require.NotNil(collect, balance)
		assert.Equal(collect, metav1.ConditionTrue, balance.Status)
		assert.Equal(collect, ring.Generation, balance.ObservedGeneration)
		assert.Equal(collect, s.Table.Generation, s.BalancedGeneration)
	})
}
