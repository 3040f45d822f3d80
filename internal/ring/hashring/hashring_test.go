package hashring_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/ring/hashring"
)

const keyCount = 5000

// random returns members with names like pods.
func random(seed uint64, count int) []string {
	r := rand.New(rand.NewPCG(seed, uint64(count)))
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("watcher-6d4cf56db6-%05x", r.Uint32()&0xfffff)
	}
	return names
}

func keys() []string {
	names := make([]string, keyCount)
	for i := range names {
		names[i] = "node-" + strconv.Itoa(i)
	}
	return names
}

func TestSharesAreBalanced(t *testing.T) {
	t.Parallel()
	all := keys()
	for count := 2; count <= 20; count++ {
		for seed := range uint64(5) {
			members := random(seed, count)
			r := hashring.New(members...)
			share := map[string]int{}
			for _, key := range all {
				share[r.Owner(key)]++
			}
			mean := float64(keyCount) / float64(count)
			for _, m := range members {
				assert.InDelta(t, mean, share[m], mean/4, "member %s of %d, seed %d", m, count, seed)
			}
		}
	}
}

func TestOnlyShareOfMemberMoves(t *testing.T) {
	t.Parallel()
	all := keys()
	for count := 1; count <= 20; count++ {
		members := random(1, count+1)
		without, with := hashring.New(members[1:]...), hashring.New(members...)
		moved := 0
		for _, key := range all {
			before, after := without.Owner(key), with.Owner(key)
			if before == after {
				continue
			}
			moved++
			assert.Equal(t, members[0], after, "%s moves only to the joining member", key)
			assert.Equal(t, 1, with.Rank(key, before), "the member that lost %s comes next", key)
		}
		mean := float64(keyCount) / float64(count+1)
		assert.InDelta(t, mean, moved, mean/4, "with %d others", count)
	}
}

func TestRanksAreAnOrderOfTheMembers(t *testing.T) {
	t.Parallel()
	members := random(2, 7)
	r := hashring.New(members...)
	for _, key := range keys() {
		ranks := make([]int, 0, len(members))
		for _, m := range members {
			ranks = append(ranks, r.Rank(key, m))
		}
		require.Zero(t, r.Rank(key, r.Owner(key)))
		slices.Sort(ranks)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, ranks)
		require.Equal(t, 7, r.Rank(key, "a stranger"))
	}
}

func TestRingIsDeterministic(t *testing.T) {
	members := random(3, 5)
	reversed := slices.Clone(members)
	slices.Reverse(reversed)
	one, other := hashring.New(members...), hashring.New(append(reversed, members[0])...)
	assert.Equal(t, one.Members(), other.Members())
	for _, key := range keys() {
		require.Equal(t, one.Owner(key), other.Owner(key))
	}
	// Replicas of different versions must agree, so these places must not change.
	fixed := hashring.New("a", "b", "c")
	assert.Equal(t, []string{"a", "c", "a"}, []string{fixed.Owner("node-1"), fixed.Owner("node-2"), fixed.Owner("node-3")})
}

func TestRingWithoutMembersHasNoOwners(t *testing.T) {
	for _, empty := range []*hashring.Ring{{}, hashring.New()} {
		assert.Empty(t, empty.Members())
		assert.Empty(t, empty.Owner("node-1"))
		assert.Zero(t, empty.Rank("node-1", "me"))
	}
}

func TestLookUpDoesNotAllocate(t *testing.T) {
	members := random(4, 20)
	r := hashring.New(members...)
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = r.Place("node-4711", members[7]) }))
}

func BenchmarkLookUp(b *testing.B) {
	for _, count := range []int{3, 20} {
		members := random(5, count)
		r := hashring.New(members...)
		b.Run(fmt.Sprintf("members=%d", count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = r.Place("node-4711", members[0])
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	members := random(6, 20)
	b.ReportAllocs()
	for b.Loop() {
		_ = hashring.New(members...)
	}
}
