package slots_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"nodekeeper.dev/sharding/slots"
)

const (
	// keys is the number of objects in the measurements of their balance, and keySets that of the
	// sets of keys from which these take the median.
	keys, keySets = 10_000, 32
	// limit is the goal for the objects of a shard, relative to the mean.
	limit = 1.05
)

// placement is a number of slots with their objects, and a table of them.
type placement struct {
	objects []int // of each slot
	shards  []int // of each slot
	held    []int // objects of each shard
}

// newPlacement gives each shard the same number of slots.
func newPlacement(r *rand.Rand, count, shards int) *placement {
	p := &placement{objects: make([]int, count), shards: make([]int, count), held: make([]int, shards)}
	for i, slot := range r.Perm(count) {
		p.shards[slot] = i % shards
	}
	return p
}

// add adds n objects, or removes them if by is -1.
func (p *placement) add(set, first, n, by int) {
	for i := first; i < first+n; i++ {
		key := slots.Object{Kind: "Secret", Namespace: fmt.Sprintf("team-%d", i%20), Name: fmt.Sprintf("%x-%d", set*7919, i)}.Key()
		slot := int(slots.Hash(key) % int64(len(p.objects)))
		p.objects[slot] += by
		p.held[p.shards[slot]] += by
	}
}

// most returns the objects of the shard with the most, relative to the mean.
func (p *placement) most() float64 { return float64(slices.Max(p.held)) * float64(len(p.held)) / keys }

// weigh moves slots from the shard with the most objects to the one with the fewest until the limit
// is kept, and returns the number of objects that move.
func (p *placement) weigh() (moved int) {
	for p.most() > limit {
		from, to := slices.Index(p.held, slices.Max(p.held)), slices.Index(p.held, slices.Min(p.held))
		best := -1
		for slot, shard := range p.shards { // the largest slot that keeps the target below the source
			fits := shard == from && p.objects[slot] > 0 && p.held[to]+p.objects[slot] < p.held[from]
			if fits && (best < 0 || p.objects[slot] > p.objects[best]) {
				best = slot
			}
		}
		if best < 0 {
			return moved
		}
		n := p.objects[best]
		p.shards[best] = to
		p.held[from], p.held[to], moved = p.held[from]-n, p.held[to]+n, moved+n
	}
	return moved
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// BenchmarkObjectsPerShard measures how evenly 10,000 objects are distributed with other numbers of
// slots, and what a table would cost that follows the numbers of objects: the objects that move at
// first, and after a tenth of all objects has been replaced. sharding/docs/slots.md has the
// figures.
func BenchmarkObjectsPerShard(b *testing.B) {
	for _, count := range []int{slots.Count, 2 * slots.Count, 4 * slots.Count, 16 * slots.Count} {
		for _, shards := range []int{10, 20, 50} {
			b.Run(fmt.Sprintf("slots=%d/shards=%d", count, shards), func(b *testing.B) {
				for b.Loop() {
					measureBalance(b, count, shards)
				}
			})
		}
	}
}

func measureBalance(b *testing.B, count, shards int) {
	b.Helper()
	var most, first, later []float64
	for set := range keySets {
		p := newPlacement(rand.New(rand.NewPCG(uint64(set), 0)), count, shards)
		p.add(set, 0, keys, 1)
		most = append(most, p.most())
		first = append(first, float64(p.weigh()))
		p.add(set, 0, keys/10, -1)
		p.add(set, keys, keys/10, 1)
		later = append(later, float64(p.weigh()))
	}
	table, err := json.Marshal(newPlacement(rand.New(rand.NewPCG(0, 0)), count, shards).shards)
	require.NoError(b, err)
	b.ReportMetric(median(most), "most/mean")
	b.ReportMetric(slices.Max(most), "worst/mean")
	b.ReportMetric(median(first), "moved-first")
	b.ReportMetric(median(later), "moved-later")
	b.ReportMetric(float64(len(table)), "bytes")
	b.ReportMetric(0, "ns/op")
}
