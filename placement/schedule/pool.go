package schedule

import "maps"

// pool is what one call works with. Pods are known by their place in pod order.
type pool struct {
	policy Policy
	pods   []Pod
	place  map[string]int
	zone   []int // of each pod
	zones  int

	load, capacity []int64
	bytes, room    []int64

	now     Assignment
	changed map[string]map[string]int32 // the shares of the items that are not as in now
	work    []row                       // the items that have too many or too few; see workOnAll
	known   int                         // how many items of now there still are
	bare    bool                        // now has an item without shares
}

// row is one item with the number of its virtual replicas that are kept.
type row struct {
	*Item
	kept int64
}

func (r *row) missing() int64 { return max(r.replicas()-r.kept, 0) }

func newPool(p Policy, pods []Pod, now Assignment) *pool {
	pods = inOrder(pods)
	n := len(pods)
	numbers := make([]int64, 4*n)
	w := &pool{
		policy: p, pods: pods, place: make(map[string]int, n), zone: make([]int, n), now: now,
		load: numbers[:n], capacity: numbers[n : 2*n], bytes: numbers[2*n : 3*n], room: numbers[3*n:],
		changed: map[string]map[string]int32{},
	}
	zones := map[string]int{}
	for i := range pods {
		w.place[pods[i].Name] = i
		w.capacity[i] = p.capacity(&pods[i])
		w.room[i] = unlimited
		if pods[i].Room > 0 {
			w.room[i] = int64(pods[i].Room)
		}
		if _, isKnown := zones[pods[i].Zone]; !isKnown {
			zones[pods[i].Zone] = len(zones)
		}
		w.zone[i] = zones[pods[i].Zone]
	}
	w.zones = len(zones)
	return w
}

// shares returns how many of an item are on which pod, to be read only.
func (w *pool) shares(key string) map[string]int32 {
	if shares, isChanged := w.changed[key]; isChanged {
		return shares
	}
	return w.now[key]
}

// own returns the shares of an item in a map that may be changed.
func (w *pool) own(key string) map[string]int32 {
	shares, isChanged := w.changed[key]
	if !isChanged {
		shares = maps.Clone(w.now[key])
		if shares == nil {
			shares = map[string]int32{}
		}
		w.changed[key] = shares
	}
	return shares
}

// add puts count more virtual replicas of an item onto a pod; a negative count takes them away.
func (w *pool) add(item *Item, pod int, count int64) {
	shares := w.own(item.Key)
	name := w.pods[pod].Name
	before := shares[name]
	after := before + int32(count) //nolint:gosec // bounded by the item's Replicas, or by what is there
	w.load[pod] += count * item.weight()
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

// fits returns how many more virtual replicas of an item, of which a pod has here, fit onto it.
func (w *pool) fits(item *Item, pod int, here int32) int64 {
	if here == 0 && w.bytes[pod]+item.bytes() > w.room[pod] {
		return 0
	}
	return max(w.capacity[pod]-w.load[pod], 0) / item.weight()
}

// result returns the assignment as it is now: the one that was given if nothing is different.
func (w *pool) result(items []Item) Assignment {
	if len(w.changed) == 0 && w.known == len(w.now) {
		return w.now
	}
	if w.known == len(w.now) && !w.bare && len(w.changed) < len(w.now)/2 { // a clone costs less than one insertion after the other
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
