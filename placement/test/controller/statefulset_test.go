package controller_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/test/queues"
)

// statefulSet creates the StatefulSet of a pool. Nothing runs its pods.
func (w *world) statefulSet(replicas int32) *appsv1.StatefulSet {
	w.t.Helper()
	labels := map[string]string{"app": "w"}
	set := &appsv1.StatefulSet{ObjectMeta: w.meta("w"), Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "w", Image: "w"}}}},
	}}
	require.NoError(w.t, w.Create(w.t.Context(), set))
	return set
}

// pods starts pods w-0, w-1 and so on.
func (w *world) pods(n int, duration time.Duration) (all []*pod) {
	w.t.Helper()
	for i := range n {
		all = append(all, w.pod(fmt.Sprintf("w-%d", i), duration))
	}
	return all
}

func TestRollOfAStatefulSetMovesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "statefulSet: w, patience: 10m")
	w.statefulSet(3)
	pods := w.pods(3, long)
	w.queue("orders", 6)
	first := w.await("orders", "Ready", "Ready")
	before, epochs := owners(t, &first), epochsOf(t, pods)
	for i, p := range pods {
		p.leave()
		w.await("orders", "Acknowledged", "PodLost")
		pods[i] = w.pod(p.name, long)
		s := w.await("orders", "Acknowledged", "Acknowledged")
		assert.Equal(t, before, owners(t, &s))
	}
	for index, epoch := range epochsOf(t, pods) {
		assert.Greater(t, epoch, epochs[index], "a new incarnation has a new epoch")
	}
	w.awaitMetrics(map[string]float64{`moves_total{pool="worker",reason="new"}`: 6, `pods{pool="worker",state="open"}`: 3})
	assert.NotContains(t, w.scrape(t), `placement_moves_total{pool="worker",reason="lost"}`)
}

// epochsOf returns the epochs in the contracts of pods, by index.
func epochsOf(t *testing.T, pods []*pod) map[int32]int64 {
	t.Helper()
	all := map[int32]int64{}
	for _, p := range pods {
		given := contractOf(t, p)
		for i := range given.Entries {
			for index, epoch := range given.Entries[i].Replicas {
				assert.NotContains(t, all, index)
				all[index] = epoch
			}
		}
	}
	return all
}

// TestDeadPodIsAwaitedWithPatience: the patience is longer than it takes to know that the pod has
// ended. Without a StatefulSet, its work moves then.
func TestDeadPodIsAwaitedWithPatience(t *testing.T) {
	t.Parallel()
	const waits = 20 * time.Second
	for name, keys := range map[string]string{"awaited": "statefulSet: w, patience: 20s", "not awaited": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, keys)
			w.statefulSet(2)
			w.pod("w-0", long)
			dies := w.pod("w-1", short)
			w.queue("orders", 4)
			w.await("orders", "Ready", "Ready")
			dies.stop()
			began := time.Now()
			w.awaitTakeover(dies)
			w.awaitMetrics(map[string]float64{`moves_total{pool="worker",reason="lost"}`: 2, `pods{pool="worker",state="ended"}`: 1})
			w.await("orders", "Acknowledged", "Acknowledged")
			if keys != "" {
				assert.Greater(t, time.Since(began), waits-short, "from its last renewal")
				w.awaitMetrics(map[string]float64{`pods_wanted{pool="worker"}`: 2})
			}
		})
	}
}

// TestPodsWantedFollowTheLoad as placement/docs/how-to.md describes it: 25 vreplicas of weight 1 need
// three pods of capacity 10, and a pod that is to come back occupies a replica.
func TestPodsWantedFollowTheLoad(t *testing.T) {
	t.Parallel()
	const wanted = `pods_wanted{pool="worker"}`
	w := newWorld(t, "statefulSet: w, capacity: 10, patience: 10m")
	set := w.statefulSet(2)
	pods := w.pods(2, long)
	w.queue("orders", 15)
	w.queue("mails", 10)
	w.awaitMetrics(map[string]float64{wanted: 3, `vreplicas{pool="worker",state="pending"}`: 5})
	w.patch(set, `{"spec":{"replicas":3}}`)
	third := w.pod("w-2", long)
	w.await("orders", "Ready", "Ready")
	w.awaitMetrics(map[string]float64{wanted: 3, `vreplicas{pool="worker",state="pending"}`: 0})
	pods[1].leave()
	w.awaitMetrics(map[string]float64{wanted: 4})
	w.pod("w-1", long)
	w.awaitMetrics(map[string]float64{wanted: 3})

	w.patch(queues.New(w.namespace, "orders", 0), `{"spec":{"partitions":10}}`)
	w.awaitMetrics(map[string]float64{wanted: 2})
	w.patch(set, `{"spec":{"replicas":2}}`)
	third.leave()
	w.awaitMetrics(map[string]float64{wanted: 2, `pods{pool="worker",state="ended"}`: 1})
}

// TestPodThatIsTakenOverIsClosedWhileItIsAwaited: its work stays where it is.
func TestPodThatIsTakenOverIsClosedWhileItIsAwaited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "statefulSet: w, patience: 10m")
	w.statefulSet(2)
	w.pod("w-0", long)
	dies := w.pod("w-1", short)
	w.queue("orders", 4)
	w.await("orders", "Ready", "Ready")
	dies.stop()
	w.awaitTakeover(dies)
	w.queue("mails", 2) // causes passes
	w.await("mails", "Ready", "Ready")
	w.awaitMetrics(map[string]float64{`pods{pool="worker",state="closed"}`: 1, `pods{pool="worker",state="ended"}`: 0, `vreplicas{pool="worker",state="placed"}`: 6})
	assert.NotContains(t, w.scrape(t), `placement_moves_total{pool="worker",reason="lost"}`)
}

// awaitTakeover waits until the Lease of a pod is free.
func (w *world) awaitTakeover(p *pod) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) { assert.Empty(t, holderOf(p.lease(t))) }, patience, period)
}

func TestScaleInOfAStatefulSetMovesTheWorkAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "statefulSet: w, patience: 10m")
	set := w.statefulSet(3)
	pods := w.pods(3, long)
	w.queue("orders", 6)
	first := w.await("orders", "Ready", "Ready")
	before := owners(t, &first)
	w.patch(set, `{"spec":{"replicas":2}}`)
	w.awaitMetrics(map[string]float64{`moves_total{pool="worker",reason="drain"}`: 2, `pods{pool="worker",state="leaving"}`: 1})
	s := w.await("orders", "Acknowledged", "Acknowledged")
	for index, pod := range owners(t, &s) {
		assert.NotEqual(t, "w-2", pod)
		if before[index] != "w-2" {
			assert.Equal(t, before[index], pod)
		}
	}
	pods[2].leave()
	w.awaitMetrics(map[string]float64{`pods{pool="worker",state="ended"}`: 1, `pods_wanted{pool="worker"}`: 1})
	w.patch(set, `{"spec":{"replicas":3}}`)
	w.pod("w-2", long)
	w.awaitMetrics(map[string]float64{`pods{pool="worker",state="open"}`: 3, `moves_total{pool="worker",reason="rebalance"}`: 2})

	// Work does not wait for a pod that a user annotated.
	pods[1].leave()
	w.await("orders", "Acknowledged", "PodLost")
	w.patch(pods[1].lease(t), `{"metadata":{"annotations":{%q:"true"}}}`, contract.UnschedulableAnnotation)
	w.awaitMetrics(map[string]float64{`moves_total{pool="worker",reason="lost"}`: 2})
	w.await("orders", "Acknowledged", "Acknowledged")
}
