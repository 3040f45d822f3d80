package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/schedule"
)

func TestNoPodBearsMoreThanItsCapacityAndRoom(t *testing.T) {
	each(t, false, func(t *testing.T, _ *rand.Rand, p pool) {
		t.Helper()
		next, _ := run(p)
		for i := range p.pods {
			pod := &p.pods[i]
			require.LessOrEqual(t, p.load(next, pod.Name), p.capacity(pod), pod.Name)
			if pod.Room > 0 {
				require.LessOrEqual(t, p.bytes(next, pod.Name), pod.Room, pod.Name)
			}
		}
	})
}

func TestEverythingIsPlacedOrPending(t *testing.T) {
	each(t, false, func(t *testing.T, _ *rand.Rand, p pool) {
		t.Helper()
		next, pending := run(p)
		require.LessOrEqual(t, len(next), len(p.items), "nothing foreign stays")
		for _, i := range p.items {
			require.Equal(t, i.Replicas, sum(next[i.Key])+pending[i.Key], i.Key)
			for name, count := range next[i.Key] {
				require.Positive(t, count)
				require.NotNil(t, p.pod(name))
			}
			if pending[i.Key] == 0 {
				continue
			}
			for n := range p.pods {
				require.False(t, p.pods[n].State == schedule.Open && p.fits(next, i, &p.pods[n]), "%s is pending, and %s has room", i.Key, p.pods[n].Name)
			}
		}
	})
}

func TestStatesAreKept(t *testing.T) {
	each(t, false, func(t *testing.T, _ *rand.Rand, p pool) {
		t.Helper()
		next, _ := run(p)
		for _, i := range p.items {
			for n := range p.pods {
				pod := &p.pods[n]
				now, after := max(p.now[i.Key][pod.Name], 0), next[i.Key][pod.Name]
				switch pod.State {
				case schedule.Ended:
					require.Zero(t, after)
				case schedule.Closed, schedule.Leaving:
					require.LessOrEqual(t, after, now, "nothing new on %s", pod.Name)
				case schedule.Open:
				}
			}
		}
	})
}

// A share shrinks only if an item has too many virtual replicas or the pod is too small.
func TestSharesShrinkOnlyForAReason(t *testing.T) {
	each(t, false, func(t *testing.T, _ *rand.Rand, p pool) {
		t.Helper()
		kept := schedule.Assignment{}
		for _, i := range p.items {
			kept[i.Key] = map[string]int32{}
			for name, count := range p.now[i.Key] {
				if pod := p.pod(name); pod != nil && pod.State <= schedule.Closed && count > 0 {
					kept[i.Key][name] = count
				}
			}
		}
		next, _ := run(p)
		for _, i := range p.items {
			for name, count := range kept[i.Key] {
				pod := p.pod(name)
				isOverfull := p.load(kept, name) > p.capacity(pod) || pod.Room > 0 && p.bytes(kept, name) > pod.Room
				if next[i.Key][name] < count {
					require.True(t, sum(kept[i.Key]) > i.Replicas || isOverfull, "%s on %s", i.Key, name)
				}
			}
		}
	})
}

func TestScheduleOfItsResultChangesNothing(t *testing.T) {
	each(t, false, func(t *testing.T, _ *rand.Rand, p pool) {
		t.Helper()
		next, pending := run(p)
		again, pendingAgain := schedule.Schedule(p.policy, p.pods, p.items, next)
		requireSame(t, next, again, "again")
		require.Equal(t, pending, pendingAgain)
	})
}

func TestTheOrderOfTheInputDoesNotMatter(t *testing.T) {
	each(t, false, func(t *testing.T, r *rand.Rand, p pool) {
		t.Helper()
		before := clone(p.now)
		next, pending := run(p)
		pods, items := shuffled(r, p.pods), shuffled(r, p.items)
		other, otherPending := schedule.Schedule(p.policy, pods, items, clone(p.now))
		require.Equal(t, next, other)
		require.Equal(t, pending, otherPending)

		balanced, moves := schedule.Rebalance(p.policy, p.pods, p.items, next, 1000)
		otherBalanced, otherMoves := schedule.Rebalance(p.policy, pods, items, next, 1000)
		require.Equal(t, balanced, otherBalanced)
		require.Equal(t, moves, otherMoves)
		require.Equal(t, schedule.WantPods(p.policy, p.pods, p.items), schedule.WantPods(p.policy, pods, items))
		require.Equal(t, before, p.now, "an argument has changed")
	})
}

func TestALostPodMovesExactlyItsOwnAndANewPodNone(t *testing.T) {
	each(t, false, func(t *testing.T, r *rand.Rand, p pool) {
		t.Helper()
		for i := range p.pods {
			if p.pods[i].State == schedule.Leaving {
				p.pods[i].State = schedule.Closed
			}
		}
		now, pending := run(p)
		if len(p.pods) == 0 || len(pending) > 0 {
			return
		}
		lost := r.IntN(len(p.pods))
		name := p.pods[lost].Name
		rest := p
		rest.pods = slices.Delete(slices.Clone(p.pods), lost, lost+1)
		next, _ := schedule.Schedule(p.policy, rest.pods, p.items, now)
		for _, i := range p.items {
			for other, count := range now[i.Key] {
				require.True(t, other == name || next[i.Key][other] >= count, "%s on %s", i.Key, other)
			}
		}
		more := append(slices.Clone(p.pods), schedule.Pod{Name: "new", Ordinal: 100})
		grown, _ := schedule.Schedule(p.policy, more, p.items, now)
		requireSame(t, now, grown, "one pod more")
	})
}

func TestAnEmptyPoolIsFilledWithASkewOfOne(t *testing.T) {
	each(t, false, func(t *testing.T, _ *rand.Rand, p pool) {
		t.Helper()
		p.now, p.policy.Capacity = nil, 0
		for i := range p.pods {
			p.pods[i].Capacity, p.pods[i].Room = 0, 0
		}
		next, _ := run(p)
		for _, i := range p.items {
			require.LessOrEqual(t, p.skew(next[i.Key]), int32(1), i.Key)
		}
	})
}

func TestRebalanceBreaksNoRuleAndEnds(t *testing.T) {
	each(t, false, func(t *testing.T, _ *rand.Rand, p pool) {
		t.Helper()
		now, pending := run(p)
		next, moves := schedule.Rebalance(p.policy, p.pods, p.items, now, 10_000)
		if p.policy.Strategy == schedule.Pack {
			require.Empty(t, moves)
		}
		for i := range p.pods {
			pod := &p.pods[i]
			require.LessOrEqual(t, p.load(next, pod.Name), p.capacity(pod))
			require.True(t, pod.Room == 0 || p.bytes(next, pod.Name) <= pod.Room)
		}
		isCalm := len(pending) == 0
		for _, i := range p.items {
			require.Equal(t, sum(now[i.Key]), sum(next[i.Key]))
			require.LessOrEqual(t, p.skew(next[i.Key]), max(p.skew(now[i.Key]), 1), i.Key)
			for name := range next[i.Key] {
				isCalm = isCalm && p.pod(name).State != schedule.Leaving
			}
		}
		_, again := schedule.Rebalance(p.policy, p.pods, p.items, next, 10_000)
		require.Empty(t, again)
		if isCalm {
			after, _ := schedule.Schedule(p.policy, p.pods, p.items, next)
			requireSame(t, next, after, "Schedule after Rebalance")
		}
		requireSame(t, now, undo(next, moves), "the moves describe all changes")
	})
}

func undo(a schedule.Assignment, moves []schedule.Move) schedule.Assignment {
	a = clone(a)
	for _, m := range slices.Backward(moves) {
		a[m.Item][m.To]--
		a[m.Item][m.From]++
	}
	return a
}

// The bound holds if all weights are one, in one zone and without bytes.
func TestRebalanceMovesNoMoreThanItMust(t *testing.T) {
	each(t, true, func(t *testing.T, _ *rand.Rand, p pool) {
		t.Helper()
		now, _ := run(p)
		_, moves := schedule.Rebalance(p.policy, p.pods, p.items, now, 10_000)
		var loads []int64
		for _, pod := range p.pods {
			loads = append(loads, p.load(now, pod.Name))
		}
		require.Len(t, moves, fewestMoves(loads, int64(max(p.policy.Tolerance, 1))))
	})
}

// fewestMoves returns the minimum number of moves until no two loads differ by more than a
// tolerance.
func fewestMoves(loads []int64, tolerance int64) int {
	if len(loads) == 0 {
		return 0
	}
	fewest := int64(1 << 40)
	for low := range slices.Max(loads) + 1 {
		var above, below, total int64
		for _, load := range loads {
			above += max(load-low-tolerance, 0)
			below += max(low-load, 0)
			total += load
		}
		if n := int64(len(loads)); low*n <= total && total <= (low+tolerance)*n {
			fewest = min(fewest, max(above, below))
		}
	}
	return int(fewest)
}

func TestMostBoundsTheMoves(t *testing.T) {
	each(t, true, func(t *testing.T, r *rand.Rand, p pool) {
		t.Helper()
		now, _ := run(p)
		_, all := schedule.Rebalance(p.policy, p.pods, p.items, now, 10_000)
		most := r.IntN(5)
		_, some := schedule.Rebalance(p.policy, p.pods, p.items, now, most)
		require.Len(t, some, min(most, len(all)))
		require.True(t, slices.Equal(all[:len(some)], some), "the first ones")
	})
}

func TestNumberDealsEachIndexOnceAndIsStable(t *testing.T) {
	each(t, false, func(t *testing.T, r *rand.Rand, _ pool) {
		t.Helper()
		replicas := int32(r.IntN(12))
		now, next := map[string]schedule.Set{}, map[string]int32{}
		for i := range r.IntN(5) {
			name := string(rune('a' + i))
			for range r.IntN(5) {
				now[name] = append(now[name], int32(r.IntN(14))-1)
			}
			next[name] = int32(r.IntN(5))
		}
		got := schedule.Number(replicas, now, next)
		owner := map[int32]string{}
		for name, set := range got {
			require.True(t, slices.IsSorted(set))
			require.LessOrEqual(t, len(set), int(next[name]))
			require.NotEmpty(t, set)
			for _, index := range set {
				require.NotContains(t, owner, index)
				require.True(t, index >= 0 && index < replicas)
				owner[index] = name
			}
		}
		require.Len(t, owner, int(min(replicas, sum(next))))
		for name, set := range kept(replicas, now) {
			have := 0
			for index, who := range owner {
				if who == name && slices.Contains(now[name], index) {
					have++
				}
			}
			require.GreaterOrEqual(t, have, min(len(set), int(next[name])), "%s keeps as many as it may of %v", name, set)
		}
		require.Equal(t, got, schedule.Number(replicas, got, next), "stable")
	})
}

// kept returns the indexes that only one pod has. The pod gives them up only because of its count.
func kept(replicas int32, now map[string]schedule.Set) map[string][]int32 {
	taken := map[int32]int{}
	for _, set := range now {
		unique := map[int32]bool{}
		for _, index := range set {
			if !unique[index] {
				unique[index] = true
				taken[index]++
			}
		}
	}
	result := map[string][]int32{}
	for name, set := range now {
		unique := map[int32]bool{}
		for _, index := range set {
			if index >= 0 && index < replicas && taken[index] == 1 && !unique[index] {
				unique[index] = true
				result[name] = append(result[name], index)
			}
		}
	}
	return result
}
