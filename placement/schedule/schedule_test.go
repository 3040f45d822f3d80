package schedule_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/schedule"
)

func open(n int, capacity int32) []schedule.Pod {
	pods := make([]schedule.Pod, n)
	for i := range pods {
		pods[i] = schedule.Pod{Name: fmt.Sprintf("worker-%d", i), Ordinal: int32(i), Capacity: capacity}
	}
	return pods
}

func TestWantPods(t *testing.T) {
	t.Parallel()
	items := []schedule.Item{{Key: "a", Replicas: 10}, {Key: "b", Replicas: 2, Weight: 5}, {Key: "c", Replicas: -3}}
	for name, tc := range map[string]struct {
		policy schedule.Policy
		pods   []schedule.Pod
		want   int32
	}{
		"the load, rounded up":                 {policy: schedule.Policy{Capacity: 8}, want: 3},
		"some room is left":                    {policy: schedule.Policy{Capacity: 8, Utilization: 50}, want: 5},
		"an ended pod takes a place":           {policy: schedule.Policy{Capacity: 8}, pods: []schedule.Pod{{Name: "a", State: schedule.Ended}, {Name: "b"}}, want: 4},
		"at least":                             {policy: schedule.Policy{Capacity: 8, MinPods: 7}, want: 7},
		"at most":                              {policy: schedule.Policy{Capacity: 8, MinPods: 7, MaxPods: 2}, want: 2},
		"one pod bears everything":             {want: 1},
		"a part of the capacity is at least 1": {policy: schedule.Policy{Capacity: 1, Utilization: 1}, want: 20},
	} {
		assert.Equal(t, tc.want, schedule.WantPods(tc.policy, tc.pods, items), name)
	}
	assert.Zero(t, schedule.WantPods(schedule.Policy{}, nil, nil))
	huge := []schedule.Item{{Key: "a", Replicas: math.MaxInt32, Weight: math.MaxInt32}, {Key: "b", Replicas: math.MaxInt32, Weight: math.MaxInt32}}
	assert.Equal(t, int32(math.MaxInt32), schedule.WantPods(schedule.Policy{Capacity: 1}, nil, huge))
}

// TestF2MinPodsAddsNoReplicas covers F2: a minimum of pods adds pods only, and all desired virtual
// replicas are placed.
func TestF2MinPodsAddsNoReplicas(t *testing.T) {
	t.Parallel()
	p := schedule.Policy{Capacity: 4, MinPods: 3}
	items := []schedule.Item{{Key: "a", Replicas: 2}}
	require.Equal(t, int32(3), schedule.WantPods(p, nil, items))
	next, pending := schedule.Schedule(p, open(3, 0), items, nil)
	assert.Equal(t, int32(2), sum(next["a"]))
	assert.Empty(t, pending)
}

// TestF3AMissingPodLosesNothing covers F3: the work of a pod that may return stays on it.
func TestF3AMissingPodLosesNothing(t *testing.T) {
	t.Parallel()
	pods, items := open(2, 10), []schedule.Item{{Key: "a", Replicas: 4}}
	now, _ := schedule.Schedule(schedule.Policy{}, pods, items, nil)
	pods[1].State = schedule.Closed
	next, _ := schedule.Schedule(schedule.Policy{}, pods, items, now)
	assert.Equal(t, now, next)
}

// TestF4ClosedPodsGetNothingNew covers F4: closed and leaving pods get no new work.
func TestF4ClosedPodsGetNothingNew(t *testing.T) {
	t.Parallel()
	pods := open(3, 10)
	pods[1].State, pods[2].State = schedule.Closed, schedule.Leaving
	next, _ := schedule.Schedule(schedule.Policy{}, pods, []schedule.Item{{Key: "a", Replicas: 6}}, nil)
	assert.Equal(t, map[string]int32{"worker-0": 6}, next["a"])
}

// TestF18NoPodIsOvercommitted covers F18: no pod is overcommitted even if many items are scheduled
// at once.
func TestF18NoPodIsOvercommitted(t *testing.T) {
	t.Parallel()
	var items []schedule.Item
	for i := range 40 {
		items = append(items, schedule.Item{Key: strconv.Itoa(i), Replicas: 1})
	}
	next, pending := schedule.Schedule(schedule.Policy{}, open(3, 10), items, nil)
	loads := map[string]int32{}
	for _, shares := range next {
		for pod, count := range shares {
			loads[pod] += count
		}
	}
	assert.Equal(t, map[string]int32{"worker-0": 10, "worker-1": 10, "worker-2": 10}, loads)
	assert.Len(t, pending, 10)
}

// TestF19WantPodsCountsEverything covers F19: WantPods follows the total demand, down to zero.
func TestF19WantPodsCountsEverything(t *testing.T) {
	t.Parallel()
	p := schedule.Policy{Capacity: 10}
	for replicas, want := range map[int32]int32{0: 0, 1: 1, 10: 1, 11: 2, 100: 10} {
		assert.Equal(t, want, schedule.WantPods(p, open(5, 0), []schedule.Item{{Key: "a", Replicas: replicas}}))
	}
}

// TestF23ALeavingPodThatIsOpenAgainTakesWork covers F23: it takes work like any other pod.
func TestF23ALeavingPodThatIsOpenAgainTakesWork(t *testing.T) {
	t.Parallel()
	pods, items := open(2, 4), []schedule.Item{{Key: "a", Replicas: 8}}
	pods[1].State = schedule.Leaving
	next, pending := schedule.Schedule(schedule.Policy{}, pods, items, nil)
	require.Equal(t, map[string]int32{"a": 4}, pending)
	pods[1].State = schedule.Open
	next, pending = schedule.Schedule(schedule.Policy{}, pods, items, next)
	assert.Empty(t, pending)
	assert.Equal(t, map[string]int32{"worker-0": 4, "worker-1": 4}, next["a"])
}

// TestF15NothingToDoReturnsWhatWasGiven covers F15: a caller can detect at once that nothing has
// changed, and nothing is rebuilt.
func TestF15NothingToDoReturnsWhatWasGiven(t *testing.T) {
	pods, items := open(3, 10), []schedule.Item{{Key: "a", Replicas: 4}, {Key: "b", Replicas: 0}}
	now, _ := schedule.Schedule(schedule.Policy{}, pods, items, nil)
	allocated := testing.AllocsPerRun(10, func() { schedule.Schedule(schedule.Policy{}, pods, items, now) })
	assert.Less(t, allocated, 20.0)
	next, _ := schedule.Schedule(schedule.Policy{}, pods, items, now)
	next["mark"] = nil
	assert.Contains(t, now, "mark")
}

// A status that a user has edited must not stop the controller.
func TestCorruptNumbersAreCheap(t *testing.T) {
	t.Parallel()
	now := schedule.Assignment{"a": {"worker-0": math.MaxInt32, "worker-1": math.MaxInt32, "worker-2": math.MinInt32}}
	next, pending := schedule.Schedule(schedule.Policy{Capacity: 10}, open(3, 0), []schedule.Item{{Key: "a", Replicas: 5}}, now)
	assert.Equal(t, int32(5), sum(next["a"]))
	assert.Empty(t, pending)
	assert.Empty(t, schedule.Number(math.MaxInt32, map[string]schedule.Set{"x": {math.MaxInt32, -4}}, nil))
}

// TestF1ANewLeaderForgetsNothing covers F1: Schedule needs only stored data.
func TestF1ANewLeaderForgetsNothing(t *testing.T) {
	t.Parallel()
	pods, items := open(3, 10), []schedule.Item{{Key: "a", Replicas: 7}}
	stored := schedule.Assignment{"a": {"worker-2": 7}}
	next, _ := schedule.Schedule(schedule.Policy{}, pods, items, stored)
	assert.Equal(t, map[string]int32{"worker-2": 7}, next["a"])
}

// TestEachReplicaNeedsRoom: a resource with many virtual replicas needs room for those on the pod
// only.
func TestEachReplicaNeedsRoom(t *testing.T) {
	t.Parallel()
	pods := []schedule.Pod{{Name: "a", Room: 200}, {Name: "b", Room: 200}, {Name: "c", Room: 19}}
	next, pending := schedule.Schedule(schedule.Policy{}, pods, []schedule.Item{{Key: "i", Replicas: 100, Bytes: 10, EachBytes: 10}}, nil)
	assert.Equal(t, schedule.Assignment{"i": {"a": 19, "b": 19}}, next)
	assert.Equal(t, map[string]int32{"i": 62}, pending)
}
