package schedule_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/schedule"
)

var (
	pools     = flag.Int("pools", 3000, "how many random pools each property is tried with")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first random pool")
)

// pool is a random input. Tests identify it by its seed.
type pool struct {
	policy schedule.Policy
	pods   []schedule.Pod
	items  []schedule.Item
	now    schedule.Assignment
}

// draw returns a random pool. A plain one has unit weights, one zone, no bytes, one capacity, and
// only open pods.
func draw(r *rand.Rand, plain bool) pool {
	var p pool
	if !plain && r.IntN(3) == 0 {
		p.policy.Strategy = schedule.Pack
	}
	p.policy.Capacity = int32(r.IntN(4) * (1 + r.IntN(12)))
	p.policy.Tolerance = int32(r.IntN(4))
	heavy, sized, zoned, stated := !plain && r.IntN(2) == 0, !plain && r.IntN(2) == 0, !plain && r.IntN(2) == 0, !plain && r.IntN(4) > 0
	for i := range r.IntN(9) {
		pod := schedule.Pod{Name: fmt.Sprintf("w-%d", i), Ordinal: int32(i)}
		if r.IntN(4) == 0 {
			pod.Ordinal = 0
		}
		if stated {
			pod.State = []schedule.State{schedule.Open, schedule.Open, schedule.Open, schedule.Closed, schedule.Leaving, schedule.Ended}[r.IntN(6)]
		}
		if zoned {
			pod.Zone = string(rune('a' + r.IntN(3)))
		}
		if sized {
			pod.Room = r.IntN(2) * (1 + r.IntN(30))
		}
		if !plain && r.IntN(5) == 0 {
			pod.Capacity = int32(r.IntN(12)) - 1
		}
		p.pods = append(p.pods, pod)
	}
	for i := range r.IntN(7) {
		item := schedule.Item{Key: fmt.Sprintf("i%d", i), Replicas: int32(r.IntN(9))}
		if heavy {
			item.Weight = int32(r.IntN(5))
		}
		if sized {
			item.Bytes, item.EachBytes = r.IntN(12), max(r.IntN(8)-4, 0)
		}
		p.items = append(p.items, item)
	}
	p.now = drawAssignment(r)
	return p
}

// drawAssignment returns a random assignment, which may exceed the limits of a pod or an item and
// contain unknown ones.
func drawAssignment(r *rand.Rand) schedule.Assignment {
	now := schedule.Assignment{}
	if r.IntN(4) == 0 {
		return now
	}
	for i := range r.IntN(8) {
		shares := map[string]int32{}
		for range r.IntN(4) {
			shares[fmt.Sprintf("w-%d", r.IntN(10))] = int32(r.IntN(6)) - 1
		}
		now[fmt.Sprintf("i%d", i)] = shares
	}
	return now
}

// each checks a property with random pools.
func each(t *testing.T, plain bool, property func(t *testing.T, r *rand.Rand, p pool)) {
	t.Helper()
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+uint64(*pools); seed++ {
		r := rand.New(rand.NewPCG(seed, 7))
		p := draw(r, plain)
		property(t, r, p)
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, p)
		}
	}
}

// Totals of a pool under an assignment.

func (p pool) pod(name string) *schedule.Pod {
	for i := range p.pods {
		if p.pods[i].Name == name {
			return &p.pods[i]
		}
	}
	return nil
}

func (p pool) capacity(pod *schedule.Pod) int64 {
	switch {
	case pod.Capacity > 0:
		return int64(pod.Capacity)
	case pod.Capacity < 0:
		return 0
	case p.policy.Capacity > 0:
		return int64(p.policy.Capacity)
	}
	return 1 << 40
}

func weight(i schedule.Item) int64 { return int64(max(i.Weight, 1)) }

func (p pool) load(a schedule.Assignment, pod string) (load int64) {
	for _, i := range p.items {
		load += int64(a[i.Key][pod]) * weight(i)
	}
	return load
}

func (p pool) bytes(a schedule.Assignment, pod string) (bytes int) {
	for _, i := range p.items {
		if a[i.Key][pod] > 0 {
			bytes += i.Bytes + i.EachBytes*int(a[i.Key][pod])
		}
	}
	return bytes
}

func (p pool) inZone(shares map[string]int32, zone string) (n int32) {
	for name, count := range shares {
		if pod := p.pod(name); pod != nil && pod.Zone == zone {
			n += count
		}
	}
	return n
}

func (p pool) fits(a schedule.Assignment, item schedule.Item, pod *schedule.Pod) bool {
	bytes := p.bytes(a, pod.Name) + item.EachBytes
	if a[item.Key][pod.Name] <= 0 {
		bytes += item.Bytes
	}
	return p.load(a, pod.Name)+weight(item) <= p.capacity(pod) && (pod.Room == 0 || bytes <= pod.Room)
}

// overfull returns 1 if a pod exceeds its capacity or room, and 0 otherwise.
func (p pool) overfull(a schedule.Assignment, pod *schedule.Pod) int {
	if p.load(a, pod.Name) > p.capacity(pod) || pod.Room > 0 && p.bytes(a, pod.Name) > pod.Room {
		return 1
	}
	return 0
}

func sum(shares map[string]int32) (n int32) {
	for _, count := range shares {
		n += count
	}
	return n
}

func clone(a schedule.Assignment) schedule.Assignment {
	c := schedule.Assignment{}
	for key, shares := range a {
		c[key] = maps.Clone(shares)
	}
	return c
}

func shuffled[T any](r *rand.Rand, from []T) []T {
	to := slices.Clone(from)
	r.Shuffle(len(to), func(i, j int) { to[i], to[j] = to[j], to[i] })
	return to
}

// skew returns the difference between the most and the fewest virtual replicas of an item in zones
// with open pods.
func (p pool) skew(shares map[string]int32) int32 {
	var counts []int32
	seen := map[string]bool{}
	for _, pod := range p.pods {
		if pod.State == schedule.Open && !seen[pod.Zone] {
			seen[pod.Zone] = true
			counts = append(counts, p.inZone(shares, pod.Zone))
		}
	}
	if len(counts) == 0 {
		return 0
	}
	return slices.Max(counts) - slices.Min(counts)
}

func run(p pool) (schedule.Assignment, map[string]int32) {
	return schedule.Schedule(p.policy, p.pods, p.items, p.now)
}

func requireSame(t *testing.T, want, got schedule.Assignment, message string) {
	t.Helper()
	require.Equal(t, compact(want), compact(got), message)
}

// compact omits empty entries.
func compact(a schedule.Assignment) schedule.Assignment {
	c := clone(a)
	for key, shares := range c {
		maps.DeleteFunc(shares, func(_ string, n int32) bool { return n == 0 })
		if len(shares) == 0 {
			delete(c, key)
		}
	}
	return c
}
