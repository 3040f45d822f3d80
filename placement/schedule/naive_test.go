package schedule_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/schedule"
)

// naive implements the rules of Schedule one virtual replica at a time, without regard to cost.
func naive(p pool) (schedule.Assignment, map[string]int32) {
	pods := slices.Clone(p.pods)
	slices.SortFunc(pods, func(a, b schedule.Pod) int {
		return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Name, b.Name))
	})
	items := slices.Clone(p.items)
	slices.SortFunc(items, func(a, b schedule.Item) int { return cmp.Compare(a.Key, b.Key) })
	next, aside := schedule.Assignment{}, schedule.Assignment{}
	for _, i := range items {
		next[i.Key], aside[i.Key] = map[string]int32{}, map[string]int32{}
		for _, pod := range pods {
			count := min(p.now[i.Key][pod.Name], i.Replicas)
			switch {
			case count <= 0:
			case pod.State <= schedule.Closed:
				next[i.Key][pod.Name] = count
			case pod.State == schedule.Leaving:
				aside[i.Key][pod.Name] = count
			}
		}
	}
	missing := func(i schedule.Item) int32 { return i.Replicas - sum(next[i.Key]) }
	for _, i := range items { // shrink
		for missing(i) < 0 {
			worst := slices.MaxFunc(slices.Collect(indexes(pods)), func(a, b int) int {
				x, y := pods[a].Name, pods[b].Name
				isHere := cmp.Compare(min(next[i.Key][x], 1), min(next[i.Key][y], 1))
				overfull := cmp.Compare(p.overfull(next, &pods[a]), p.overfull(next, &pods[b]))
				if p.policy.Strategy == schedule.Pack {
					return cmp.Or(isHere, overfull, cmp.Compare(a, b))
				}
				return cmp.Or(isHere, overfull, cmp.Compare(next[i.Key][x], next[i.Key][y]), cmp.Compare(p.load(next, x), p.load(next, y)), cmp.Compare(a, b))
			})
			next[i.Key][pods[worst].Name]--
		}
	}
	for n := range pods { // fit
		pod := &pods[n]
		for pod.Room > 0 && p.bytes(next, pod.Name) > pod.Room {
			worst := slices.MaxFunc(items, func(a, b schedule.Item) int {
				return cmp.Or(cmp.Compare(min(next[a.Key][pod.Name], 1), min(next[b.Key][pod.Name], 1)), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Key, b.Key))
			})
			next[worst.Key][pod.Name] = 0
		}
		for p.load(next, pod.Name) > p.capacity(pod) {
			worst := slices.MaxFunc(items, func(a, b schedule.Item) int {
				return cmp.Or(cmp.Compare(min(next[a.Key][pod.Name], 1), min(next[b.Key][pod.Name], 1)), cmp.Compare(min(missing(a), 1), min(missing(b), 1)),
					cmp.Compare(next[a.Key][pod.Name], next[b.Key][pod.Name]), cmp.Compare(a.Key, b.Key))
			})
			next[worst.Key][pod.Name]--
		}
	}
	slices.SortStableFunc(items, func(a, b schedule.Item) int { return cmp.Compare(missing(b), missing(a)) })
	pending := map[string]int32{}
	for _, i := range items { // fill
		for missing(i) > 0 {
			var fit []int
			for n := range pods {
				if pods[n].State == schedule.Open && p.fits(next, i, &pods[n]) {
					fit = append(fit, n)
				}
			}
			if len(fit) == 0 {
				break
			}
			best := slices.MinFunc(fit, func(a, b int) int {
				load := cmp.Compare(p.load(next, pods[a].Name), p.load(next, pods[b].Name))
				if p.policy.Strategy == schedule.Pack {
					load = -load
				}
				return cmp.Or(cmp.Compare(p.inZone(next[i.Key], pods[a].Zone), p.inZone(next[i.Key], pods[b].Zone)),
					cmp.Compare(next[i.Key][pods[a].Name], next[i.Key][pods[b].Name]), load, cmp.Compare(a, b))
			})
			next[i.Key][pods[best].Name]++
		}
	}
	for _, i := range items { // stay
		for n := range pods {
			for ; missing(i) > 0 && aside[i.Key][pods[n].Name] > 0 && p.fits(next, i, &pods[n]); aside[i.Key][pods[n].Name]-- {
				next[i.Key][pods[n].Name]++
			}
		}
		if left := missing(i); left > 0 {
			pending[i.Key] = left
		}
	}
	return next, pending
}

func indexes[T any](s []T) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := range s {
			if !yield(i) {
				return
			}
		}
	}
}

func TestScheduleFollowsTheRules(t *testing.T) {
	each(t, false, func(t *testing.T, _ *rand.Rand, p pool) {
		t.Helper()
		want, wantPending := naive(p)
		got, pending := run(p)
		requireSame(t, want, got, "assignment")
		require.Equal(t, wantPending, pending)
	})
}
