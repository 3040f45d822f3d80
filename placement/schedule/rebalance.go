package schedule

import (
	"cmp"
	"slices"
)

// Rebalance evens out the loads of the open pods by moving one virtual replica at a time, most times
// at most. With Pack it moves nothing. Give it what [Schedule] returned.
//
// Sources come by greatest load, targets by lowest load. The first pair for which an item is allowed
// to move moves it: the loads differ by more than the tolerance and by more than the item's
// weight, the item has more on the source than on the target and fits there, and the zone of the
// target is the same or has fewer of it. Of several items, the one whose numbers on the two pods
// differ most moves, then the one with the greatest key.
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

// rebalancer knows the items on each open pod, in the order of their keys.
type rebalancer struct {
	*pool
	open []int
	rows [][]*zoned
}

// zoned is an item with its number in each zone.
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
			pod, isKnown := r.place[name]
			if !isKnown || count <= 0 {
				continue
			}
			item.count[r.zone[pod]] += int64(count)
			r.load[pod] += int64(count) * item.weight()
			r.bytes[pod] += item.bytes()
			r.rows[pod] = append(r.rows[pod], item)
		}
	}
	for _, rows := range r.rows {
		slices.SortFunc(rows, compareKeys)
	}
}

func compareKeys(a, b *zoned) int { return cmp.Compare(a.Key, b.Key) }

// step moves one virtual replica, if any may move.
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

// best returns the item that moves from one pod to another, nil for none.
func (r *rebalancer) best(from, to int) (best *zoned) {
	var most int32
	for _, item := range r.rows[from] {
		shares := r.shares(item.Key)
		there := shares[r.pods[to].Name]
		difference := shares[r.pods[from].Name] - there
		isAllowed := difference > 0 && r.load[from]-r.load[to] > item.weight() && r.fits(item.Item, to, there) > 0 &&
			(r.zone[from] == r.zone[to] || item.count[r.zone[to]] < item.count[r.zone[from]])
		if isAllowed && difference >= most {
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
