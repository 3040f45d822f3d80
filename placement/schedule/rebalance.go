package schedule

import (
	"cmp"
	"slices"
)

// Rebalance evens out the loads of the open pods by moving up to most virtual replicas, one at a
// time. With Pack, it moves nothing. The argument now must be a result of [Schedule].
//
// Sources are ordered by highest load, targets by lowest load. The first pair with an item that is
// allowed to move moves it. An item is allowed to move if the loads differ by more than the
// tolerance and by more than the item's weight, the source has more of the item than the target,
// the item fits on the target, and the target is in the same zone or in a zone with fewer of the
// item. Of several items, the one with the greatest difference between the two pods moves, then the
// one with the greatest key.
func Rebalance(p Policy, pods []Pod, items []Item, now Assignment, most int) (next Assignment, moves []Move) {
	if p.Strategy == Pack || most <= 0 {
		return now, nil
	}
	w := newPool(p, pods, now)
	r := &rebalancer{pool: w, rows: make([][]*zoned, len(w.pods))}
	r.take(items)
	for len(moves) < most {
		move, found := r.step()
		if !found {
			break
		}
		moves = append(moves, move)
	}
	if len(moves) == 0 {
		return now, nil
	}
	next = make(Assignment, len(now))
	for key := range now {
		next[key] = w.shares(key)
	}
	return next, moves
}

// rebalancer tracks the items on each open pod, sorted by key.
type rebalancer struct {
	*pool
	open []int
	rows [][]*zoned
}

// zoned is an item with its number of virtual replicas in each zone.
type zoned struct {
	*Item
	count []int64
}

func (r *rebalancer) take(items []Item) {
	for pod := range r.pods {
		if r.pods[pod].State == Open {
			r.open = append(r.open, pod)
		}
	}
	for i := range items {
		item := &zoned{Item: &items[i], count: make([]int64, r.zones)}
		for name, count := range r.now[item.Key] {
			pod, ok := r.place[name]
			if !ok || count <= 0 || !r.bears(item.Item, pod, count) {
				continue
			}
			item.count[r.zone[pod]] += int64(count)
			r.load[pod] += int64(count) * item.weight()
			r.bytes[pod] += item.bytes() + int64(count)*item.each()
			r.rows[pod] = append(r.rows[pod], item)
		}
	}
	for _, rows := range r.rows {
		slices.SortFunc(rows, compareKeys)
	}
}

func compareKeys(a, b *zoned) int { return cmp.Compare(a.Key, b.Key) }

// step moves one virtual replica. It returns false if none may move.
func (r *rebalancer) step() (Move, bool) {
	slices.SortFunc(r.open, func(a, b int) int { return cmp.Or(cmp.Compare(r.load[a], r.load[b]), cmp.Compare(a, b)) })
	for _, from := range slices.Backward(r.open) {
		for _, to := range r.open {
			if r.load[from]-r.load[to] <= max(int64(r.policy.Tolerance), 1) {
				break
			}
			if item := r.best(from, to); item != nil {
				return r.move(item, from, to), true
			}
		}
	}
	return Move{}, false
}

// best returns the item to move from one pod to another, or nil.
func (r *rebalancer) best(from, to int) (best *zoned) {
	var most int32
	for _, item := range r.rows[from] {
		shares := r.shares(item.Key)
		there := shares[r.pods[to].Name]
		difference := shares[r.pods[from].Name] - there
		allowed := difference > 0 && r.load[from]-r.load[to] > item.weight() && r.fits(item.Item, to, there) > 0 &&
			(r.zone[from] == r.zone[to] || item.count[r.zone[to]] < item.count[r.zone[from]])
		if allowed && difference >= most {
			best, most = item, difference
		}
	}
	return best
}

func (r *rebalancer) move(item *zoned, from, to int) Move {
	r.add(item.Item, from, -1)
	r.add(item.Item, to, 1)
	item.count[r.zone[from]]--
	item.count[r.zone[to]]++
	shares := r.shares(item.Key)
	if shares[r.pods[from].Name] == 0 {
		at, _ := slices.BinarySearchFunc(r.rows[from], item, compareKeys)
		r.rows[from] = slices.Delete(r.rows[from], at, at+1)
	}
	if shares[r.pods[to].Name] == 1 {
		at, _ := slices.BinarySearchFunc(r.rows[to], item, compareKeys)
		r.rows[to] = slices.Insert(r.rows[to], at, item)
	}
	return Move{Item: item.Key, From: r.pods[from].Name, To: r.pods[to].Name}
}
