package schedule

import (
	"cmp"
	"slices"
)

// Strategy tells which of several pods gets a virtual replica, where the item is spread equally
// well on each.
type Strategy int

// The strategies. In both, the virtual replicas of one item are spread over zones and pods.
const (
	Spread Strategy = iota // the pod with the lowest load
	Pack                   // the pod with the highest load
)

// Policy is what a pool is set to. The zero value spreads without limits.
type Policy struct {
	Strategy Strategy
	// Tolerance is how far the loads of two pods may differ before Rebalance moves anything;
	// below 1 counts as 1.
	Tolerance int32
	// Capacity is the load that a pod bears if the pod itself does not say otherwise; 0: no limit.
	Capacity int32
	// Utilization is the part of Capacity, in percent, that WantPods aims at; below 1 counts as 100.
	Utilization int32
	// MinPods and MaxPods bound WantPods; MaxPods 0: no limit.
	MinPods, MaxPods int32
}

// State tells what may run on a pod.
type State int

// The states of a pod.
const (
	Open    State = iota // takes new work
	Closed               // keeps its work and takes no new work
	Leaving              // keeps only what fits on no open pod
	Ended                // keeps nothing
)

// Pod is one pod of a pool. Names are unique.
type Pod struct {
	Name, Zone string
	// Ordinal comes before Name in the order of pods.
	Ordinal int32
	// Capacity overrides that of the policy; 0: the policy's; negative: the pod bears nothing.
	Capacity int32
	State    State
	// Room is how many bytes the entries on this pod may have; 0: no limit.
	Room int
}

// Item has Replicas virtual replicas to place. Keys are unique.
type Item struct {
	Key string
	// Replicas below 0 counts as 0.
	Replicas int32
	// Weight is the load of one virtual replica; below 1 counts as 1.
	Weight int32
	// Bytes is the size of one entry: what the item takes on a pod, however many of its virtual
	// replicas are there; below 0 counts as 0.
	Bytes int
}

func (i *Item) replicas() int64 { return int64(max(i.Replicas, 0)) }
func (i *Item) weight() int64   { return int64(max(i.Weight, 1)) }
func (i *Item) bytes() int64    { return int64(max(i.Bytes, 0)) }

// Assignment is how many virtual replicas of each item are on which pod, by the item's key and the
// pod's name.
//
// What a function returns may share maps with what it was given. Treat both as read-only.
type Assignment map[string]map[string]int32

// Move takes one virtual replica of an item from one pod to another.
type Move struct{ Item, From, To string }

const unlimited = int64(1) << 62

// capacity returns the load that a pod bears.
func (p *Policy) capacity(pod *Pod) int64 {
	switch {
	case pod.Capacity > 0:
		return int64(pod.Capacity)
	case pod.Capacity < 0:
		return 0
	case p.Capacity > 0:
		return int64(p.Capacity)
	}
	return unlimited
}

// inOrder returns the pods in pod order: by ordinal, then by name.
func inOrder(pods []Pod) []Pod {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Name, b.Name))
	})
	return pods
}
