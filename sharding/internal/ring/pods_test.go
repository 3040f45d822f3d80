package ring

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// ringOfOne returns a ring in which only the shard "old" has slots, and which waits ten seconds for
// further joins.
func ringOfOne() *v1alpha1.ClusterRing {
	ring := &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: "ring"}}
	ring.Spec.Handover.Settle = &metav1.Duration{Duration: 10 * time.Second}
	ring.Status.Table, _ = Next(nil, []Shard{{Name: "old", State: Ready}}, 0, time.Time{})
	return ring
}

// joining returns a new shard beside "old".
func joining(at time.Time) []Shard {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "new"}}
	return []Shard{{Name: "new", State: Ready, Joined: at, Lease: lease}, {Name: "old", State: Ready, Joined: at, Lease: lease}}
}

func podOf(ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "new"},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

// TestShardTakesNoObjectsBeforeItsPodIsReady: its settle time begins when the pod was last seen not
// ready, and a pod that is ready is not read again.
func TestShardTakesNoObjectsBeforeItsPodIsReady(t *testing.T) {
	t.Parallel()
	clients := fake.NewClientset(podOf(corev1.ConditionFalse))
	c, ring := &Controller{Pods: clients.CoreV1(), pods: map[string]map[string]*podSeen{}}, ringOfOne()
	start := time.Unix(1000, 0)
	joinsAt := func(second int) bool {
		now, shards := start.Add(time.Duration(second)*time.Second), joining(start)
		c.awaitPods(t.Context(), ring, shards, now)
		next, _ := Next(ring.Status.Table, shards, settleOf(ring), now)
		return len(assigned(next).Shards) == 2
	}
	for second := range 100 {
		require.False(t, joinsAt(second), "after %d s", second)
		require.False(t, joinsAt(second), "once more after %d s", second)
	}
	assert.Len(t, clients.Actions(), 100, "one read per second")
	_, err := clients.CoreV1().Pods("ns").UpdateStatus(t.Context(), podOf(corev1.ConditionTrue), metav1.UpdateOptions{})
	require.NoError(t, err)
	clients.ClearActions()
	for second := 100; second < 109; second++ {
		require.False(t, joinsAt(second), "after %d s", second)
	}
	assert.True(t, joinsAt(109), "ten seconds after the last read that found it not ready")
	assert.Len(t, clients.Actions(), 1)
}

// TestShardWithAPodThatIsNeverReadyJoins after ten minutes and its settle time.
func TestShardWithAPodThatIsNeverReadyJoins(t *testing.T) {
	t.Parallel()
	clients, start := fake.NewClientset(podOf(corev1.ConditionFalse)), time.Unix(1000, 0)
	c, ring := &Controller{Pods: clients.CoreV1(), pods: map[string]map[string]*podSeen{}}, ringOfOne()
	joinsAt := func(after time.Duration) bool {
		shards := joining(start)
		c.awaitPods(t.Context(), ring, shards, start.Add(after))
		next, _ := Next(ring.Status.Table, shards, settleOf(ring), start.Add(after))
		return len(assigned(next).Shards) == 2
	}
	settled := maxUnready + settleOf(ring)
	for after := time.Duration(0); after < settled; after += time.Second {
		require.False(t, joinsAt(after), "after %s", after)
	}
	assert.True(t, joinsAt(settled))
}

// TestFailedReadIsRepeated: after it, nothing is known of the pod.
func TestFailedReadIsRepeated(t *testing.T) {
	t.Parallel()
	clients, fails := fake.NewClientset(podOf(corev1.ConditionTrue)), true
	clients.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, apierrors.NewTooManyRequestsError("busy")
	})
	c, ring, start := &Controller{Pods: clients.CoreV1(), pods: map[string]map[string]*podSeen{}}, ringOfOne(), time.Unix(1000, 0)
	shards := joining(start)
	assert.Equal(t, podPeriod, c.awaitPods(t.Context(), ring, shards, start))
	assert.True(t, shards[0].Unready)
	fails = false
	shards = joining(start)
	assert.Zero(t, c.awaitPods(t.Context(), ring, shards, start.Add(podPeriod)))
	assert.False(t, shards[0].Unready)
}

// TestManyNewShardsAreReadInTurn, and the load on the API server does not grow with their number.
func TestManyNewShardsAreReadInTurn(t *testing.T) {
	t.Parallel()
	clients, start := fake.NewClientset(), time.Unix(1000, 0)
	c, ring := &Controller{Pods: clients.CoreV1(), pods: map[string]map[string]*podSeen{}}, ringOfOne()
	var shards []Shard
	for i := range 3 * maxPodReads {
		one := joining(start)[0]
		one.Name = fmt.Sprintf("new-%02d", i)
		shards = append(shards, one)
	}
	for round := range 2 {
		assert.Equal(t, podPeriod, c.awaitPods(t.Context(), ring, slices.Clone(shards), start.Add(time.Duration(round)*podPeriod)))
		assert.Len(t, clients.Actions(), (round+1)*maxPodReads)
	}
	assert.Zero(t, c.awaitPods(t.Context(), ring, slices.Clone(shards), start.Add(2*podPeriod)))
	assert.Len(t, clients.Actions(), 3*maxPodReads)
}

// TestLeaverIsReplacedByAShardWithAReadyPod: the others wait for leavers of their own.
func TestLeaverIsReplacedByAShardWithAReadyPod(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	old, _ := Next(nil, []Shard{{Name: "a", State: Ready}, {Name: "b", State: Ready}}, 0, now)
	shards := []Shard{
		{Name: "a", State: Leaving},
		{Name: "b", State: Ready},
		{Name: "c", State: Ready, Joined: now},
		{Name: "d", State: Ready, Joined: now, Unready: true},
	}
	next, _ := Next(old, shards, time.Minute, now)
	assert.Equal(t, []string{"b", "c"}, assigned(next).Shards)
	shards[1].State = Uncertain
	next, _ = Next(old, shards, time.Minute, now)
	assert.Equal(t, []string{"b", "c", "d"}, assigned(next).Shards, "no responsive shard has slots")
}

// TestAwaitPodsNeverStopsAJoin: what cannot be known, and what is not ready for long, does not keep
// a shard from its objects.
func TestAwaitPodsNeverStopsAJoin(t *testing.T) {
	t.Parallel()
	forbidden := fake.NewClientset(podOf(corev1.ConditionFalse))
	forbidden.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "new", nil)
	})
	unready := func() *fake.Clientset { return fake.NewClientset(podOf(corev1.ConditionFalse)) }
	start := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		clients *fake.Clientset
		change  func(*v1alpha1.ClusterRing)
		after   time.Duration
	}{
		"no pod":           {clients: fake.NewClientset()},
		"no right":         {clients: forbidden},
		"no settle time":   {clients: unready(), change: func(r *v1alpha1.ClusterRing) { r.Spec.Handover.Settle = nil }},
		"the first shard":  {clients: unready(), change: func(r *v1alpha1.ClusterRing) { r.Status.Table = nil }},
		"over ten minutes": {clients: unready(), after: maxUnready + time.Second},
		"a shard in place": {clients: unready(), change: func(r *v1alpha1.ClusterRing) { r.Status.Table, _ = Next(nil, joining(start), 0, start) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, ring, shards := &Controller{Pods: tc.clients.CoreV1(), pods: map[string]map[string]*podSeen{}}, ringOfOne(), joining(start)
			if tc.change != nil {
				tc.change(ring)
			}
			assert.Zero(t, c.awaitPods(t.Context(), ring, shards, start.Add(tc.after)))
			assert.False(t, shards[0].Unready)
		})
	}
}
