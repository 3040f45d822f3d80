package slots_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
		"/Secret/default/s1": 295, "/Secret/default/s2": 789, "/Node//node-1": 185, "a": 460, "project-foo": 771,
		"apps/Deployment/team-a/api": 841, "rbac.authorization.k8s.io/ClusterRole//system:node": 215, "": 0,
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

// With so many objects that chance contributes less than 0.02, no shard of 2 to 50 has more than 1.05
// times the objects of its slots.
func TestHashKeepsSharesOfManyShards(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]func(i int) string{
		"numbered":         func(i int) string { return fmt.Sprintf("/Secret/default/s-%d", i) },
		"in namespaces":    func(i int) string { return fmt.Sprintf("apps/Deployment/team-%d/api-%d", i%100, i/100) },
		"of equal lengths": func(i int) string { return fmt.Sprintf("web.example.com/Website/t%03d/shop-%06d", i%500, i/500) },
	} {
		const objects = 600_000
		var of [slots.Count]int
		for i := range objects {
			of[slots.Slot(key(i))]++
		}
		for n := 2; n <= 50; n++ {
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprintf("web-%d", i)
			}
			table := slots.Table{}.With(names)
			held := make([]int, n)
			for slot, shard := range table.Slots {
				held[shard] += of[slot]
			}
			for i, shard := range table.Shards {
				assert.LessOrEqual(t, float64(held[i]), 1.05*objects/slots.Count*float64(table.Share(shard)), "%s: %s of %d shards", name, shard, n)
			}
		}
	}
}

// Names with two counters are spread like random ones, whatever the distance between the counters.
// A hash that adds the counters up fails this test, since then equal sums share a slot.
func TestNamesWithTwoCountersSpreadLikeRandomOnes(t *testing.T) {
	t.Parallel()
	const objects, patterns = 5_000, 200
	var sum, squares float64
	for pattern := range patterns {
		var of [slots.Count]int
		between, outer := strings.Repeat("x", pattern%40), []int{10, 25, 50, 100}[pattern%4]
		for i := range objects {
			of[slots.Slot(fmt.Sprintf("/Secret/team%d-%d/%s%d", pattern, i%outer, between, i/outer))]++
		}
		deviation := deviation(of)
		assert.Less(t, deviation, 5.0, "pattern %d", pattern)
		sum, squares = sum+deviation, squares+deviation*deviation
	}
	assert.InDelta(t, 0, sum/patterns, 0.2)
	assert.InDelta(t, 1, squares/patterns, 0.3)
}

// deviation returns how far the counts of random slots are from equal counts, as a value that has a
// standard normal distribution: the sum of the squares of their differences has a known one.
func deviation(of [slots.Count]int) float64 {
	total, chi := 0, 0.0
	for _, n := range of {
		total += n
	}
	mean := float64(total) / slots.Count
	for _, n := range of {
		chi += (float64(n) - mean) * (float64(n) - mean) / mean
	}
	return (chi - (slots.Count - 1)) / math.Sqrt(2*(slots.Count-1))
}

// The slots of similar keys have nothing to do with each other: neither the slots nor the distances
// between the slots of two of them are distributed unevenly.
func TestSlotsOfSimilarKeysAreIndependent(t *testing.T) {
	t.Parallel()
	const keys = 100_000
	r := rand.New(rand.NewPCG(3, 4))
	character := func() byte { return "abcdefghijklmnopqrstuvwxyz0123456789-."[r.IntN(38)] }
	numbered := func(format string) func(i int) (string, string) {
		return func(i int) (string, string) { return fmt.Sprintf(format, i), fmt.Sprintf(format, i+1) }
	}
	for name, pair := range map[string]func(i int) (string, string){
		"pods":         numbered("/Pod/default/pod-%d"),
		"jobs":         numbered("batch/Job/ci/build-%06d"),
		"namespaces":   numbered("apps/Deployment/team-%d/api"),
		"a long name":  numbered("apps/Deployment/team/" + strings.Repeat("long-", 40) + "%d-api"),
		"label values": numbered("%d"),
		"uuids": func(int) (string, string) {
			uuid := fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), r.IntN(1<<14)+1<<15, r.IntN(1<<48))
			return "/Secret/default/" + uuid + "-a", "/Secret/default/" + uuid + "-b"
		},
		"of one character": func(int) (string, string) {
			key := []byte("/Secret/default/")
			for range 10 + r.IntN(50) {
				key = append(key, character())
			}
			other, at := slices.Clone(key), len(key)-1-r.IntN(len(key)-16)
			for other[at] == key[at] {
				other[at] = character()
			}
			return string(key), string(other)
		},
		"of two exchanged characters": func(i int) (string, string) {
			key := []byte(fmt.Sprintf("/Secret/default/%06d-%c%c%c%c", i, character(), character(), character(), character()))
			other, at := slices.Clone(key), len(key)-4+r.IntN(3)
			other[at], other[at+1] = '0', '1'
			key[at], key[at+1] = '1', '0'
			return string(key), string(other)
		},
	} {
		var of, distances [slots.Count]int
		for i := range keys {
			one, other := pair(i)
			slot := slots.Slot(one)
			of[slot]++
			distances[(slots.Slot(other)-slot+slots.Count)%slots.Count]++
		}
		assert.Less(t, deviation(of), 5.0, "slots of %s", name)
		assert.Less(t, deviation(distances), 5.0, "distances between slots of %s", name)
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
