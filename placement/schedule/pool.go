package schedule

import (
	"maps"
	"slices"
)

// pool is the state of one call. Pods are identified by their position in pod order.
type pool struct {
	policy Policy
	pods   []Pod
	place  map[string]int
	zone   []int // of each pod
	zones  int

	load, capacity []int64
	bytes, room    []int64

	now     Assignment
	changed map[string]map[string]int32 // shares of items that differ from now
	work    []row                       // items with too many or too few virtual replicas; see workOnAll
	huge    []*Item                     // items with more virtual replicas than are ever placed
	known   int                         // number of items in now that still exist
	bare    bool                        // whether now contains an item without shares
}

// row is an item with the number of its virtual replicas that are kept.
type row struct {
	*Item
	kept int64
}

func (r *row) missing() int64 { return max(r.replicas()-r.kept, 0) }

func newPool(p Policy, pods []Pod, now Assignment) *pool {
	pods = inOrder(pods)
	place := make(map[string]int, len(pods))
	pods = slices.DeleteFunc(pods, func(pod Pod) bool {
		_, isDouble := place[pod.Name]
		if !isDouble {
			place[pod.Name] = len(place)
		}
		return isDouble
	})
	n := len(pods)
	numbers := make([]int64, 4*n)
	w := &pool{
		policy: p, pods: pods, place: place, zone: make([]int, n), now: now,
		load: numbers[:n], capacity: numbers[n : 2*n], bytes: numbers[2*n : 3*n], room: numbers[3*n:],
		changed: map[string]map[string]int32{},
	}
	zones := map[string]int{}
	for i := range pods {
		w.capacity[i] = p.capacity(&pods[i])
		w.room[i] = unlimited
		if pods[i].Room > 0 {
			w.room[i] = int64(pods[i].Room)
		}
		if _, ok := zones[pods[i].Zone]; !ok {
			zones[pods[i].Zone] = len(zones)
		}
		w.zone[i] = zones[pods[i].Zone]
	}
	w.zones = len(zones)
	return w
}

// shares returns the shares of an item by pod. The map must not be modified.
func (w *pool) shares(key string) map[string]int32 {
	if shares, ok := w.changed[key]; ok {
		return shares
	}
	return w.now[key]
}

// own returns the shares of an item in a map that may be modified.
func (w *pool) own(key string) map[string]int32 {
	shares, ok := w.changed[key]
	if !ok {
		shares = maps.Clone(w.now[key])
		if shares == nil {
			shares = map[string]int32{}
		}
		w.changed[key] = shares
	}
	return shares
}

// add adds count virtual replicas of an item to a pod. A negative count removes them.
func (w *pool) add(item *Item, pod int, count int64) {
	shares := w.own(item.Key)
	name := w.pods[pod].Name
	before := shares[name]
	after := before + int32(count) //nolint:gosec // bounded by the item's Replicas or by the present number
	w.load[pod] += count * item.weight()
	w.bytes[pod] += count * item.each()
	if before == 0 {
		w.bytes[pod] += item.bytes()
	}
	if after == 0 {
		w.bytes[pod] -= item.bytes()
		delete(shares, name)
		return
	}
	shares[name] = after
}

// bears reports whether the load of a pod can be counted with count more virtual replicas of an
// item, whatever the pod's capacity is.
func (w *pool) bears(item *Item, pod int, count int32) bool {
	return int64(count)*item.weight() <= unlimited-w.load[pod]
}

// isOverfull reports whether a pod exceeds its capacity or room.
func (w *pool) isOverfull(pod int) bool {
	return w.load[pod] > w.capacity[pod] || w.bytes[pod] > w.room[pod]
}

// fits returns how many more virtual replicas of an item fit on a pod that has here of them.
func (w *pool) fits(item *Item, pod int, here int32) int64 {
	count := max(w.capacity[pod]-w.load[pod], 0) / item.weight()
	room := w.room[pod] - w.bytes[pod]
	if here == 0 {
		if room -= item.bytes(); room < 0 {
			return 0
		}
	}
	if each := item.each(); each > 0 {
		count = min(count, max(room, 0)/each)
	}
	return count
}

// result returns the resulting assignment, which is now itself if nothing has changed.
func (w *pool) result(items []Item) Assignment {
	if len(w.changed) == 0 && w.known == len(w.now) {
		return w.now
	}
	if w.known == len(w.now) && !w.bare && len(w.changed) < len(w.now)/2 { // cloning is cheaper than inserting each item
		next := maps.Clone(w.now)
		for key, shares := range w.changed {
			if next[key] = shares; len(shares) == 0 {
				delete(next, key)
			}
		}
		return next
	}
	next := make(Assignment, len(items))
	for i := range items {
		if shares := w.shares(items[i].Key); len(shares) > 0 {
			next[items[i].Key] = shares
		}
	}
	return next
}
