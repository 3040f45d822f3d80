package schedule_test

import (
	"fmt"

	"nodekeeper.dev/placement/schedule"
)

// Three pods have a capacity of four virtual replicas each. Each item is spread over the pods.
func ExampleSchedule() {
	pods := []schedule.Pod{{Name: "worker-0", Ordinal: 0}, {Name: "worker-1", Ordinal: 1}, {Name: "worker-2", Ordinal: 2}}
	items := []schedule.Item{{Key: "orders", Replicas: 5}, {Key: "mails", Replicas: 2}}
	next, pending := schedule.Schedule(schedule.Policy{Capacity: 4}, pods, items, nil)
	fmt.Println("orders", next["orders"])
	fmt.Println("mails ", next["mails"])
	fmt.Println("pending", pending)
	// Output:
	// orders map[worker-0:2 worker-1:2 worker-2:1]
	// mails  map[worker-0:1 worker-2:1]
	// pending map[]
}

// A lost pod moves exactly its own virtual replicas. All others stay where they are.
func ExampleSchedule_lostPod() {
	now := schedule.Assignment{
		"orders": {"worker-0": 2, "worker-1": 2, "worker-2": 1},
		"mails":  {"worker-0": 1, "worker-2": 1},
	}
	pods := []schedule.Pod{{Name: "worker-0", Ordinal: 0}, {Name: "worker-1", Ordinal: 1, State: schedule.Ended}, {Name: "worker-2", Ordinal: 2}}
	items := []schedule.Item{{Key: "orders", Replicas: 5}, {Key: "mails", Replicas: 2}}
	next, pending := schedule.Schedule(schedule.Policy{Capacity: 4}, pods, items, now)
	fmt.Println("orders", next["orders"])
	fmt.Println("mails ", next["mails"])
	fmt.Println("pending", pending)
	// Output:
	// orders map[worker-0:3 worker-2:2]
	// mails  map[worker-0:1 worker-2:1]
	// pending map[]
}

// A pod that is not ready keeps its work, and a leaving pod keeps only work that fits nowhere else.
func ExampleSchedule_states() {
	now := schedule.Assignment{"orders": {"worker-0": 2, "worker-1": 2, "worker-2": 2}}
	pods := []schedule.Pod{
		{Name: "worker-0", Ordinal: 0},
		{Name: "worker-1", Ordinal: 1, State: schedule.Closed},
		{Name: "worker-2", Ordinal: 2, State: schedule.Leaving},
	}
	items := []schedule.Item{{Key: "orders", Replicas: 6}}
	next, pending := schedule.Schedule(schedule.Policy{Capacity: 3}, pods, items, now)
	fmt.Println(next["orders"], pending)
	// Output:
	// map[worker-0:3 worker-1:2 worker-2:1] map[]
}

// With zones, each item is spread over zones first.
func ExampleSchedule_zones() {
	pods := []schedule.Pod{
		{Name: "a-0", Zone: "a", Ordinal: 0},
		{Name: "a-1", Zone: "a", Ordinal: 1},
		{Name: "b-0", Zone: "b", Ordinal: 2},
	}
	next, _ := schedule.Schedule(schedule.Policy{}, pods, []schedule.Item{{Key: "orders", Replicas: 4}}, nil)
	fmt.Println(next["orders"])
	// Output:
	// map[a-0:1 a-1:1 b-0:2]
}

// A new pod takes no work by itself. Rebalance moves as few virtual replicas as possible.
func ExampleRebalance() {
	pods := []schedule.Pod{{Name: "worker-0", Ordinal: 0}, {Name: "worker-1", Ordinal: 1}, {Name: "worker-2", Ordinal: 2}}
	items := []schedule.Item{{Key: "orders", Replicas: 6}}
	now := schedule.Assignment{"orders": {"worker-0": 3, "worker-1": 3}}
	same, _ := schedule.Schedule(schedule.Policy{}, pods, items, now)
	fmt.Println(same["orders"])
	next, moves := schedule.Rebalance(schedule.Policy{}, pods, items, now, 10)
	fmt.Println(next["orders"])
	for _, m := range moves {
		fmt.Println(m.Item, m.From, "->", m.To)
	}
	// Output:
	// map[worker-0:3 worker-1:3]
	// map[worker-0:2 worker-1:2 worker-2:2]
	// orders worker-1 -> worker-2
	// orders worker-0 -> worker-2
}

// 30 virtual replicas at 80 % of a capacity of 10 need four pods, plus one for a pod that has
// ended.
func ExampleWantPods() {
	p := schedule.Policy{Capacity: 10, Utilization: 80, MinPods: 2}
	items := []schedule.Item{{Key: "orders", Replicas: 30}}
	fmt.Println(schedule.WantPods(p, nil, items))
	fmt.Println(schedule.WantPods(p, []schedule.Pod{{Name: "worker-1", State: schedule.Ended}}, items))
	// Output:
	// 4
	// 5
}

// Each pod keeps its indexes as far as the counts allow. Other pods get the lowest free indexes.
func ExampleNumber() {
	now := map[string]schedule.Set{"worker-0": {0, 1, 2}, "worker-1": {3, 4}}
	next := schedule.Number(5, now, map[string]int32{"worker-0": 2, "worker-1": 1, "worker-2": 2})
	fmt.Println(next["worker-0"], next["worker-1"], next["worker-2"])
	// Output:
	// 0-1 3 2,4
}
