package schedule

import (
	"cmp"
	"slices"
)

// Strategy determines which of several pods gets a virtual replica if the item is spread equally
// well on each.
type Strategy int

// The strategies. Both spread the virtual replicas of one item over zones and pods.
const (
	Spread Strategy = iota // the pod with the lowest load
	Pack                   // the pod with the highest load
)

// Policy configures a pool. The zero value spreads without limits.
type Policy struct {
	Strategy Strategy
	// Tolerance is the difference between the loads of two pods up to which Rebalance moves
	// nothing. Values below 1 count as 1.
	Tolerance int32
	// Capacity is the maximum load of a pod that does not set its own. Zero means no limit.
	Capacity int32
	// Utilization is the percentage of Capacity that WantPods plans for. Values below 1 count as
	// 100.
	Utilization int32
	// MinPods and MaxPods bound the result of WantPods. MaxPods 0 means no limit.
	MinPods, MaxPods int32
}

// State determines what may run on a pod.
type State int

// The states of a pod.
const (
	Open    State = iota // takes new work
	Closed               // keeps its work and takes no new work
	Leaving              // keeps only work that fits on no open pod
	Ended                // keeps nothing
)

// Pod is a pod of a pool. Names must be unique; of several pods with one name, the first one in pod
// order counts.
type Pod struct {
	Name, Zone string
	// Ordinal precedes Name in the order of pods.
	Ordinal int32
	// Capacity overrides the policy's Capacity. Zero means the policy's, and a negative value means
	// that the pod takes no load.
	Capacity int32
	State    State
	// Room is the maximum size of the entries on this pod in bytes. Zero means no limit.
	Room int
}

// Item is a resource with virtual replicas to place. Keys must be unique; it is undefined how many
// virtual replicas of several items with one key are placed.
type Item struct {
	Key string
	// Replicas is the desired number of virtual replicas. Negative values count as 0. At most
	// [MaxIndexes] are placed, and the excess is pending.
	Replicas int32
	// Weight is the load of one virtual replica. Values below 1 count as 1.
	Weight int32
	// Bytes is the size of the item's entry on a pod without its virtual replicas, and EachBytes what
	// each of them adds. Negative values count as 0.
	Bytes, EachBytes int
}

// replicas returns the number of virtual replicas to place.
func (i *Item) replicas() int64 { return int64(min(max(i.Replicas, 0), MaxIndexes)) }

// excess returns the number of virtual replicas that are never placed.
func (i *Item) excess() int64 { return int64(max(i.Replicas, 0)) - i.replicas() }

func (i *Item) weight() int64 { return int64(max(i.Weight, 1)) }
func (i *Item) bytes() int64  { return min(int64(max(i.Bytes, 0)), maxBytes) }
func (i *Item) each() int64   { return min(int64(max(i.EachBytes, 0)), maxEachBytes) }

// maxEachBytes is the same for EachBytes, as an item has at most [MaxIndexes].
const maxEachBytes = 1 << 20

// maxBytes is far above the size of any entry, and so low that the sizes of all entries on a pod do
// not overflow.
const maxBytes = 1 << 40

// Assignment is the number of virtual replicas by item key and pod name.
//
// The result of a function may share maps with its arguments. Treat both as read-only.
type Assignment map[string]map[string]int32

// Move moves one virtual replica of an item from one pod to another.
type Move struct{ Item, From, To string }

// unlimited is the capacity of a pod without limit. No load exceeds it, so loads do not overflow.
const unlimited = int64(1) << 62

// capacity returns the maximum load of a pod.
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
	slices.SortStableFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Name, b.Name))
	})
	return pods
}
