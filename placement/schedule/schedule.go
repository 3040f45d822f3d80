package schedule

import (
	"cmp"
	"math"
	"slices"
)

// Schedule places the virtual replicas that are missing and returns how many of each item fit
// nowhere. It does five steps:
//
//  1. Keep what is on open and closed pods, but no share above Replicas, set aside what is on leaving
//     pods, and drop the rest: what is on ended and unknown pods, and unknown items.
//  2. Shrink: of an item that has too many, take one from the pod where it has most, then from the
//     greatest load, then from the last in pod order (Pack: from the last in pod order at once).
//  3. Fit: from a pod whose entries exceed its room, remove whole shares, those with the most bytes
//     first. From a pod whose load exceeds its capacity take one at a time: from an item that is
//     short anyhow, then from the item that has most there.
//  4. Fill: items that miss most come first. A virtual replica goes to the open pod with room that has
//     fewest of the item in its zone, then fewest on the pod itself, then the lowest load (Pack: the
//     highest), then to the first in pod order.
//  5. Stay: what is still missing stays on the leaving pods where it was, if it fits.
//
// The rest is pending; an item that has none pending is not in that map. Ties are decided by key. If
// nothing changes, next is now itself, at the cost of looking at each item and share once.
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

// lookAhead is how many items are looked up before their shares are looked at. Two short loops wait less for
// memory than one long one: a call with nothing to do takes a sixth less.
const lookAhead = 64

// keep takes in what is on open and closed pods, and returns what is on leaving ones. Everything
// else is dropped.
func (w *pool) keep(items []Item) (aside Assignment) {
	aside = Assignment{}
	var ahead [lookAhead]map[string]int32
	for at := 0; at < len(items); at += lookAhead {
		some := items[at:min(at+lookAhead, len(items))]
		for i := range some {
			shares, has := w.now[some[i].Key]
			if has {
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
		pod, isKnown := w.place[name]
		switch {
		case isKnown && count > 0 && item.Replicas > 0 && w.pods[pod].State <= Closed:
			if count > item.Replicas { // shrinks below that anyhow
				count = item.Replicas
				w.own(item.Key)[name] = count
			}
			r.kept += int64(count)
			w.load[pod] += int64(count) * weight
			w.bytes[pod] += bytes
			continue
		case isKnown && count > 0 && w.pods[pod].State == Leaving:
			if aside[item.Key] == nil {
				aside[item.Key] = map[string]int32{}
			}
			aside[item.Key][name] = count
		}
		delete(w.own(item.Key), name)
	}
	return r
}

// workOnAll makes rows for the items that had as many as they should have.
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

// shrink takes away what items have too many.
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

// mostOf returns the pod that loses one of an item which has too many.
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

// fit takes away what is too much for a pod.
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

// byPod returns the items of each pod, in the order of their keys.
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
		for _, r := range rows { // by key: of equals, the last one wins
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

// missing returns the items that miss virtual replicas: those that miss most come first.
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

// stay puts what is still missing back onto the leaving pods.
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

// settle forgets that an item was taken off a leaving pod if all of it has stayed.
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
