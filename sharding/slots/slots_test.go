package slots_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/sharding/slots"
)

// TestSlotNeverChanges pins the hash: the API server computes the same slots, and stored
// assignments depend on them.
func TestSlotNeverChanges(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int{
		"/Secret/default/s1": 787, "/Secret/default/s2": 753, "/Node//node-1": 477, "a": 983, "project-foo": 176,
		"apps/Deployment/team-a/api": 204, "rbac.authorization.k8s.io/ClusterRole//system:node": 295, "": 0,
	} {
		assert.Equal(t, want, slots.Slot(key), "of %q", key)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "/Node//node-1", slots.Object{Kind: "Node", Name: "node-1"}.Key())
	assert.Equal(t, "apps/Deployment/team-a/api", slots.Object{Group: "apps", Kind: "Deployment", Namespace: "team-a", Name: "api"}.Key())
}

// Of four shards, each has about a quarter of the objects, whatever the pattern of their names.
func TestNamesSpread(t *testing.T) {
	t.Parallel()
	table := slots.Table{}.With([]string{"a", "b", "c", "d"})
	for _, format := range []string{"/Secret/default/s%d", "apps/Deployment/team-%d/api", "/Node//ip-10-0-%d.internal", "%d", "/Node//node-%05d"} {
		const objects = 10_000
		count := map[string]int{}
		for i := range objects {
			shard, ok := table.Shard(fmt.Sprintf(format, i))
			require.True(t, ok)
			count[shard]++
		}
		for shard, n := range count {
			assert.InDelta(t, objects/4, n, objects/20, "%s of %s", shard, format)
		}
	}
}

// TestShardsOfAStatefulSetHaveEqualShares covers F8: the tokens of upstream's ring collide for x-1
// and x-11, so that one of these shards has almost no objects.
func TestShardsOfAStatefulSetHaveEqualShares(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 50; n++ {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("x-%d", i)
		}
		table := slots.Table{}.With(names)
		for _, name := range names {
			assert.InDelta(t, float64(slots.Count)/float64(n), table.Share(name), 1, "%s of %d", name, n)
		}
	}
}

func TestNoShards(t *testing.T) {
	t.Parallel()
	_, ok := slots.Table{}.Shard("a")
	assert.False(t, ok)
	assert.Equal(t, slots.Table{}, slots.Table{}.With([]string{"a"}).With(nil))
	assert.Zero(t, slots.Table{}.Share("a"))
}

// The property holds for any sequence of joins and leaves.
func TestTableMovesOnlyTheExcess(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		table := slots.Table{}
		for range 12 {
			names := draw(r)
			next := table.With(names)
			check(t, table, next, names)
			table = next
		}
	}
}

// draw returns random names in random order, some of them twice.
func draw(r *rand.Rand) []string {
	var names []string
	for range r.IntN(60) {
		names = append(names, fmt.Sprintf("web-%d", r.IntN(60)))
	}
	return names
}

func check(t *testing.T, before, after slots.Table, names []string) {
	t.Helper()
	shuffled := slices.Clone(names)
	slices.Reverse(shuffled)
	require.Equal(t, after, before.With(shuffled), "the order of the names does not matter")
	require.Equal(t, after, after.With(names), "nothing moves without a join or leave")
	want := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(want) == 0 {
		require.Equal(t, slots.Table{}, after)
		return
	}
	require.Equal(t, want, after.Shards)
	require.Len(t, after.Slots, slots.Count)
	moved, must := 0, slots.Count
	for slot := range slots.Count {
		if len(before.Shards) == 0 || before.Shards[before.Slots[slot]] != after.Shards[after.Slots[slot]] {
			moved++
		}
	}
	larger := slots.Count % len(want) // so many shards may have one more slot
	var kept []int
	for _, name := range want {
		share := after.Share(name)
		require.GreaterOrEqual(t, share, slots.Count/len(want))
		require.LessOrEqual(t, share, slots.Count/len(want)+1)
		kept = append(kept, before.Share(name))
	}
	slices.Sort(kept)
	slices.Reverse(kept)
	for i, had := range kept {
		quota := slots.Count / len(want)
		if i < larger {
			quota++
		}
		must -= min(had, quota)
	}
	require.Equal(t, must, moved, "from %v to %v", before.Shards, after.Shards)
}

// TestTableOfAFewShards checks an example that was computed by hand.
func TestTableOfAFewShards(t *testing.T) {
	t.Parallel()
	one := slots.Table{}.With([]string{"b"})
	assert.Equal(t, slots.Count, one.Share("b"))
	two := one.With([]string{"b", "a"})
	assert.Equal(t, []string{"a", "b"}, two.Shards)
	assert.Equal(t, 1, two.Slots[0], "b keeps its lowest slots")
	assert.Equal(t, 0, two.Slots[slots.Count-1], "a gets the highest")
	three := two.With([]string{"a", "b", "c"})
	assert.Equal(t, []int{342, 341, 341}, []int{three.Share("a"), three.Share("b"), three.Share("c")}, "1024 = 3*341 + 1; the first name has one more")
	assert.Equal(t, 512, three.With([]string{"b", "c"}).Share("b"))
}

func BenchmarkWith(b *testing.B) {
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("web-%d", i))
	}
	table := slots.Table{}.With(names)
	for b.Loop() {
		table.With(names[1:])
	}
}

func BenchmarkSlot(b *testing.B) {
	for b.Loop() {
		slots.Slot("apps/Deployment/team-a/api-with-a-longer-name")
	}
}
