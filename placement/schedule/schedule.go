package schedule

import (
	"cmp"
	"math"
	"slices"
)

// Schedule places the missing virtual replicas and returns the next assignment and the number of
// virtual replicas of each item that fit on no pod. It performs five steps:
//
//  1. Keep the shares on open and closed pods, limited to Replicas. Set aside the shares on
//     leaving pods. Drop shares of unknown items and shares on ended or unknown pods.
//  2. Shrink: from an item that has too many virtual replicas, take one from the pods that exceed
//     their capacity or room, if it is on any; of several pods, from the one with the most of them,
//     then with the highest load, then the last in pod order (Pack: the last in pod order at once).
//  3. Fit: from a pod whose entries exceed its room, remove whole shares, largest Bytes first.
//     From a pod whose load exceeds its capacity, take one virtual replica at a time: from an item
//     that has too few in any case, then from the item with the most on the pod.
//  4. Fill: items that lack the most virtual replicas come first. A virtual replica is placed on
//     the open pod with room that has the fewest of the item in its zone, then the fewest on the
//     pod itself, then the lowest load (Pack: the highest), then the first in pod order.
//  5. Stay: virtual replicas that are still missing stay on the leaving pods where they were, if
//     they fit.
//
// The remaining virtual replicas are pending; items without any are not in that map. Ties are
// resolved by key. If nothing changes, next is now itself, and the cost is one access per item and
// share.
func Schedule(p Policy, pods []Pod, items []Item, now Assignment) (next Assignment, pending map[string]int32) {
	w := newPool(p, pods, now)
	aside := w.keep(items)
	w.shrink()
	w.fit(items)
	pending = map[string]int32{}
	for _, item := range w.huge {
		pending[item.Key] = int32(item.excess()) //nolint:gosec // at most Replicas
	}
	missing := w.missing()
	if len(missing) > 0 {
		filler := newFiller(w)
		for _, r := range missing {
			r.kept += filler.fill(r)
		}
	}
	for _, r := range missing {
		w.stay(r, aside[r.Key])
		if left := r.missing(); left > 0 {
			pending[r.Key] += int32(left) //nolint:gosec // at most Replicas
		}
	}
	w.settle(aside)
	return w.result(items), pending
}

// lookAhead is the number of items that are looked up before their shares are read. Two short loops
// wait less for memory than one long loop: a call with nothing to do takes a sixth less time.
const lookAhead = 64

// keep takes over the shares on open and closed pods, and returns the shares on leaving pods. It
// drops all others.
func (w *pool) keep(items []Item) (aside Assignment) {
	aside = Assignment{}
	var ahead [lookAhead]map[string]int32
	for at := 0; at < len(items); at += lookAhead {
		some := items[at:min(at+lookAhead, len(items))]
		for i := range some {
			shares, ok := w.now[some[i].Key]
			if ok {
				w.known++
				w.bare = w.bare || len(shares) == 0
			}
			ahead[i] = shares
		}
		for i := range some {
			if r := w.keepItem(&some[i], ahead[i], aside); r.kept != r.replicas() {
				w.work = append(w.work, r)
			}
			if some[i].excess() > 0 {
				w.huge = append(w.huge, &some[i])
			}
		}
	}
	return aside
}

// keepItem is keep for one item.
func (w *pool) keepItem(item *Item, shares map[string]int32, aside Assignment) row {
	r := row{Item: item}
	weight, bytes := item.weight(), item.bytes()
	for name, count := range shares {
		pod, ok := w.place[name]
		switch {
		case ok && count > 0 && item.Replicas > 0 && w.pods[pod].State <= Closed:
			if int64(count) > r.replicas() { // step 2 would reduce it in any case
				count = int32(r.replicas()) //nolint:gosec // at most MaxIndexes
				w.own(item.Key)[name] = count
			}
			if !w.bears(item, pod, count) {
				break
			}
			r.kept += int64(count)
			w.load[pod] += int64(count) * weight
			w.bytes[pod] += bytes + int64(count)*item.each()
			continue
		case ok && count > 0 && w.pods[pod].State == Leaving:
			if aside[item.Key] == nil {
				aside[item.Key] = map[string]int32{}
			}
			aside[item.Key][name] = count
		}
		delete(w.own(item.Key), name)
	}
	return r
}

// workOnAll adds rows for the items that had exactly their desired number of virtual replicas.
func (w *pool) workOnAll(items []Item) {
	has := make(map[string]bool, len(w.work))
	for i := range w.work {
		has[w.work[i].Key] = true
	}
	for i := range items {
		if !has[items[i].Key] {
			w.work = append(w.work, row{Item: &items[i], kept: items[i].replicas()})
		}
	}
}

// shrink removes the excess virtual replicas of items.
func (w *pool) shrink() {
	var over []*row
	for i := range w.work {
		if w.work[i].kept > w.work[i].replicas() {
			over = append(over, &w.work[i])
		}
	}
	slices.SortFunc(over, func(a, b *row) int { return cmp.Compare(a.Key, b.Key) })
	for _, r := range over {
		heap := w.podsOf(r.Key)
		isWorse := func(a, b int) bool { return w.isWorse(r.Key, a, b) }
		heapify(heap, isWorse)
		for ; r.kept > r.replicas() && len(heap) > 0; r.kept-- {
			w.add(r.Item, heap[0], -1)
			if w.shares(r.Key)[w.pods[heap[0]].Name] == 0 {
				heap = pop(heap)
			}
			down(heap, 0, isWorse)
		}
	}
}

// podsOf returns the pods that an item is on.
func (w *pool) podsOf(key string) []int {
	var pods []int
	for name := range w.shares(key) {
		pods = append(pods, w.place[name])
	}
	return pods
}

// isWorse reports whether an item that has too many virtual replicas gives up one on pod a rather
// than on pod b.
func (w *pool) isWorse(key string, a, b int) bool {
	if x, y := w.isOverfull(a), w.isOverfull(b); x != y {
		return x
	}
	if w.policy.Strategy == Pack {
		return a > b
	}
	shares := w.shares(key)
	return cmp.Or(cmp.Compare(shares[w.pods[a].Name], shares[w.pods[b].Name]), cmp.Compare(w.load[a], w.load[b]), cmp.Compare(a, b)) > 0
}

// fit removes virtual replicas from pods that exceed their capacity or room.
func (w *pool) fit(items []Item) {
	var over []int
	for pod := range w.pods {
		if w.isOverfull(pod) {
			over = append(over, pod)
		}
	}
	if len(over) == 0 {
		return
	}
	w.workOnAll(items)
	here := w.byPod()
	for _, pod := range over {
		w.fitBytes(pod, here[pod])
		w.fitLoad(pod, here[pod])
	}
}

// byPod returns the items on each pod, sorted by key.
func (w *pool) byPod() [][]*row {
	here := make([][]*row, len(w.pods))
	for i := range w.work {
		for name := range w.shares(w.work[i].Key) {
			pod := w.place[name]
			here[pod] = append(here[pod], &w.work[i])
		}
	}
	for _, rows := range here {
		slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.Key, b.Key) })
	}
	return here
}

func (w *pool) fitBytes(pod int, rows []*row) {
	name := w.pods[pod].Name
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(a.bytes(), b.bytes()) })
	for _, r := range slices.Backward(rows) {
		if w.bytes[pod] <= w.room[pod] {
			return
		}
		count := int64(w.shares(r.Key)[name])
		w.add(r.Item, pod, -count)
		r.kept -= count
	}
}

func (w *pool) fitLoad(pod int, rows []*row) {
	name := w.pods[pod].Name
	here := func(r *row) int32 { return w.shares(r.Key)[name] }
	heap := slices.DeleteFunc(slices.Clone(rows), func(r *row) bool { return here(r) == 0 })
	isWorse := func(a, b *row) bool {
		if x, y := a.missing() > 0, b.missing() > 0; x != y {
			return x
		}
		return cmp.Or(cmp.Compare(here(a), here(b)), cmp.Compare(a.Key, b.Key)) > 0
	}
	heapify(heap, isWorse)
	for w.load[pod] > w.capacity[pod] && len(heap) > 0 {
		r := heap[0]
		if here(r) > 0 { // otherwise another item has the same key
			w.add(r.Item, pod, -1)
			r.kept--
		}
		if here(r) == 0 {
			heap = pop(heap)
		}
		down(heap, 0, isWorse)
	}
}

// missing returns the items that lack virtual replicas, the ones that lack the most first.
func (w *pool) missing() []*row {
	var rows []*row
	for i := range w.work {
		if w.work[i].missing() > 0 {
			rows = append(rows, &w.work[i])
		}
	}
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.missing(), a.missing()), cmp.Compare(a.Key, b.Key))
	})
	return rows
}

// stay returns virtual replicas that are still missing to the leaving pods.
func (w *pool) stay(r *row, aside map[string]int32) {
	if len(aside) == 0 {
		return
	}
	for pod := range w.pods {
		count := min(int64(aside[w.pods[pod].Name]), r.missing())
		if count == 0 {
			continue
		}
		if count = min(count, w.fits(r.Item, pod, 0), math.MaxInt32); count > 0 {
			w.add(r.Item, pod, count)
			r.kept += count
		}
	}
}

// settle discards the change of an item that was taken off leaving pods and returned to them
// completely.
func (w *pool) settle(aside Assignment) {
	for key := range aside {
		if sameShares(w.changed[key], w.now[key]) {
			delete(w.changed, key)
		}
	}
}

func sameShares(a, b map[string]int32) bool {
	if len(a) != len(b) {
		return false
	}
	for name, count := range a {
		if b[name] != count {
			return false
		}
	}
	return true
}
