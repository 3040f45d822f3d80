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
//  2. Shrink: from an item that has too many virtual replicas, take one from the pod with the most
//     of them, then from the pod with the highest load, then from the last pod in pod order (Pack:
//     from the last pod in pod order at once).
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
			pending[r.Key] = int32(left) //nolint:gosec // at most Replicas
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
			if count > item.Replicas { // step 2 would reduce it in any case
				count = item.Replicas
				w.own(item.Key)[name] = count
			}
			r.kept += int64(count)
			w.load[pod] += int64(count) * weight
			w.bytes[pod] += bytes
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
		for ; r.kept > r.replicas(); r.kept-- {
			w.add(r.Item, w.mostOf(r.Key), -1)
		}
	}
}

// mostOf returns the pod from which to take a virtual replica of an item that has too many.
func (w *pool) mostOf(key string) int {
	best, most := -1, int32(0)
	for name, count := range w.shares(key) {
		pod := w.place[name]
		if w.policy.Strategy == Pack {
			best = max(best, pod)
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(count, most), cmp.Compare(w.load[pod], w.load[best]), cmp.Compare(pod, best)) > 0 {
			best, most = pod, count
		}
	}
	return best
}

// fit removes virtual replicas from pods that exceed their capacity or room.
func (w *pool) fit(items []Item) {
	var over []int
	for pod := range w.pods {
		if w.bytes[pod] > w.room[pod] || w.load[pod] > w.capacity[pod] {
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
	for w.load[pod] > w.capacity[pod] {
		var worst *row
		most, isShort := int32(0), false
		for _, r := range rows { // sorted by key: of equal rows, the last one is selected
			count := w.shares(r.Key)[name]
			short := r.missing() > 0
			if count > 0 && (worst == nil || short && !isShort || short == isShort && count >= most) {
				worst, most, isShort = r, count, short
			}
		}
		w.add(worst.Item, pod, -1)
		worst.kept--
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
