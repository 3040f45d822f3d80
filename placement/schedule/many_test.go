package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/schedule"
)

// manyPools is the number of small pools for each pool with many items.
const manyPools = 50

// Far more items exist than change, and than are looked up at once.
func TestScheduleOfManyItemsFollowsTheRules(t *testing.T) {
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+uint64(max(*pools/manyPools, 1)); seed++ {
		r := rand.New(rand.NewPCG(seed, 8))
		p := pool{policy: schedule.Policy{Strategy: schedule.Strategy(r.IntN(2)), Capacity: int32(60 + r.IntN(60))}}
		for i := range 6 {
			p.pods = append(p.pods, schedule.Pod{Name: fmt.Sprintf("w-%d", i), Ordinal: int32(i), Zone: string(rune('a' + r.IntN(2)))})
		}
		for i := range 60 + r.IntN(200) {
			p.items = append(p.items, schedule.Item{Key: fmt.Sprintf("i%d", i), Replicas: int32(r.IntN(4)), Weight: int32(r.IntN(3)), Bytes: r.IntN(3)})
		}
		p.now, _ = run(p)
		for range 3 { // each round starts from the previous result
			p.pods[r.IntN(len(p.pods))].State = schedule.State(r.IntN(4))
			for range r.IntN(5) {
				p.items[r.IntN(len(p.items))].Replicas = int32(r.IntN(5))
			}
			if r.IntN(3) == 0 { // an unknown item
				p.now = clone(p.now)
				p.now["gone"] = map[string]int32{"w-0": 1}
			}
			before := clone(p.now)
			want, wantPending := naive(p)
			got, pending := run(p)
			require.NotContains(t, got, "gone", "seed %d", seed)
			requireSame(t, want, got, fmt.Sprintf("seed %d", seed))
			require.Equal(t, wantPending, pending, "seed %d", seed)
			require.Equal(t, before, p.now, "seed %d: an argument was modified", seed)
			for key, shares := range got {
				require.NotEmpty(t, shares, "seed %d: %s", seed, key)
			}
			p.now = got
		}
	}
}
