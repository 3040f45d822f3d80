package schedule_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/schedule"
)

const huge = math.MaxInt32

// The greatest numbers must neither stop the controller nor make a share that cannot be read.
func TestAHugeNumberOfReplicasIsPending(t *testing.T) {
	t.Parallel()
	items := []schedule.Item{{Key: "a", Replicas: huge}, {Key: "b", Replicas: 2}}
	for name, now := range map[string]schedule.Assignment{"empty": nil, "edited": {"a": {"worker-0": huge, "worker-1": huge, "worker-2": huge}}} {
		next, pending := schedule.Schedule(schedule.Policy{}, open(3, 0), items, now)
		assert.Equal(t, int32(schedule.MaxIndexes), sum(next["a"]), name)
		assert.Equal(t, map[string]int32{"a": huge - schedule.MaxIndexes}, pending, name)
		again, pendingAgain := schedule.Schedule(schedule.Policy{}, open(3, 0), items, next)
		assert.Equal(t, next, again, name)
		assert.Equal(t, pending, pendingAgain, name)
	}
	next, pending := schedule.Schedule(schedule.Policy{Capacity: 10}, open(3, 0), items, nil)
	assert.Equal(t, int32(30), sum(next["a"])+sum(next["b"]))
	assert.Equal(t, int32(huge), sum(next["a"])+pending["a"])

	numbered := schedule.Number(huge, nil, map[string]int32{"w": huge})
	require.Len(t, numbered["w"], schedule.MaxIndexes)
	count, err := schedule.CountSet(numbered["w"].String())
	require.NoError(t, err, "it can be read")
	assert.Equal(t, schedule.MaxIndexes, count)
}

// Many virtual replicas leave a pod at once, beside many items.
func TestAPodThatIsFarTooSmallIsCheap(t *testing.T) {
	t.Parallel()
	const items, each = 5_000, 100
	pods, now := open(2, 0), schedule.Assignment{}
	pods[0].Capacity, pods[1].State = 1, schedule.Closed
	var list []schedule.Item
	for i := range items {
		list = append(list, schedule.Item{Key: fmt.Sprintf("i%d", i), Replicas: each})
		now[list[i].Key] = map[string]int32{"worker-0": each}
	}
	next, pending := schedule.Schedule(schedule.Policy{}, pods, list, now)
	assert.Equal(t, schedule.Assignment{"i0": {"worker-0": 1}}, next)
	assert.Len(t, pending, items)
}

func TestLoadsDoNotOverflow(t *testing.T) {
	t.Parallel()
	var items []schedule.Item
	now := schedule.Assignment{}
	for i := range 5_000 { // the load of one pod would be 5,000 times 2^51
		items = append(items, schedule.Item{Key: fmt.Sprintf("i%04d", i), Replicas: huge, Weight: huge})
		now[items[i].Key] = map[string]int32{"worker-0": huge}
	}
	pods := open(3, 0)
	pods[1].Capacity, pods[2].Capacity = 10, -1
	pods[0].State = schedule.Closed
	next, _ := schedule.Schedule(schedule.Policy{}, pods, items, now)
	for key, shares := range next {
		for pod, count := range shares {
			require.Equal(t, "worker-0", pod, key)
			require.Positive(t, count, key)
		}
	}
	items = items[:3]
	for name, weight := range map[string]int32{"heavy": huge, "light": 1} {
		for i := range items {
			items[i].Weight = weight
		}
		next, pending := schedule.Schedule(schedule.Policy{Capacity: 7}, open(2, 0), items, now)
		placed := int32(0)
		for _, i := range items {
			placed += sum(next[i.Key])
			assert.Equal(t, int32(huge), sum(next[i.Key])+pending[i.Key], name)
		}
		assert.Equal(t, map[string]int32{"heavy": 0, "light": 14}[name], placed)
		_, moves := schedule.Rebalance(schedule.Policy{}, open(2, 0), items, now, 3)
		assert.LessOrEqual(t, len(moves), 3, name)
	}
}

// The result is undefined, but there is one.
func TestDuplicatesDoNotPanic(t *testing.T) {
	t.Parallel()
	for _, strategy := range []schedule.Strategy{schedule.Spread, schedule.Pack} {
		for _, replicas := range []int32{0, 1, 2, 9} {
			p := schedule.Policy{Strategy: strategy, Capacity: 3}
			items := []schedule.Item{{Key: "a", Replicas: replicas, Bytes: 2}, {Key: "a", Replicas: 5, Bytes: 2}, {Key: "a", Replicas: 1, Bytes: 2}}
			pods := open(3, 0)
			pods[1].Room, pods[2].Name = 3, pods[1].Name
			now := schedule.Assignment{"a": {"worker-0": 9, "worker-1": 9}}
			for range 3 {
				now, _ = schedule.Schedule(p, pods, items, now)
				now, _ = schedule.Rebalance(p, pods, items, now, 10)
			}
			for name, count := range now["a"] {
				assert.LessOrEqual(t, count, int32(3), name)
			}
		}
	}
}

// An item that has too many gives up what relieves an overfull pod, so that nothing else must move.
func TestShrinkRelievesOverfullPodsFirst(t *testing.T) {
	t.Parallel()
	for name, strategy := range map[string]schedule.Strategy{"Spread": schedule.Spread, "Pack": schedule.Pack} {
		pods := open(2, 0)
		pods[0].Capacity, pods[1].Capacity = 2, 10
		items := []schedule.Item{{Key: "a", Replicas: 2}, {Key: "b", Replicas: 2}}
		now := schedule.Assignment{"a": {"worker-0": 1, "worker-1": 2}, "b": {"worker-0": 2}}
		next, pending := schedule.Schedule(schedule.Policy{Strategy: strategy}, pods, items, now)
		assert.Equal(t, schedule.Assignment{"a": {"worker-1": 2}, "b": {"worker-0": 2}}, next, name)
		assert.Empty(t, pending, name)
	}
}

func TestCountSetListsNothing(t *testing.T) {
	allocated := testing.AllocsPerRun(10, func() {
		count, err := schedule.CountSet("0-1048575")
		assert.NoError(t, err)
		assert.Equal(t, schedule.MaxIndexes, count)
	})
	assert.Less(t, allocated, 20.0)
	_, err := schedule.CountSet("0-1048576")
	require.ErrorIs(t, err, schedule.ErrMalformedSet)
}
