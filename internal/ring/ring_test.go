package ring_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/ring"
)

const nodeCount = 5000

// random returns the names of members as pods have them.
func random(seed uint64, count int) []string {
	r := rand.New(rand.NewPCG(seed, uint64(count)))
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("watcher-6d4cf56db6-%05x", r.Uint32()&0xfffff)
	}
	return names
}

func owner(r *ring.Ring, node string) string {
	name, _ := r.Place(node, "")
	return name
}

func rank(r *ring.Ring, node, name string) int {
	_, before := r.Place(node, name)
	return before
}

func nodes() []string {
	names := make([]string, nodeCount)
	for i := range names {
		names[i] = "node-" + strconv.Itoa(i)
	}
	return names
}

func TestSharesAreBalanced(t *testing.T) {
	t.Parallel()
	all := nodes()
	for count := 2; count <= 20; count++ {
		for seed := range uint64(5) {
			members := random(seed, count)
			r := ring.NewRing(members...)
			share := map[string]int{}
			for _, node := range all {
				share[owner(r, node)]++
			}
			mean := float64(nodeCount) / float64(count)
			for _, m := range members {
				assert.InDelta(t, mean, share[m], mean/4, "member %s of %d, seed %d", m, count, seed)
			}
		}
	}
}

func TestOnlyTheShareOfAMemberMovesWithIt(t *testing.T) {
	t.Parallel()
	all := nodes()
	for count := 1; count <= 20; count++ {
		members := random(1, count+1)
		without, with := ring.NewRing(members[1:]...), ring.NewRing(members...)
		moved := 0
		for _, node := range all {
			before, after := owner(without, node), owner(with, node)
			if before == after {
				continue
			}
			moved++
			assert.Equal(t, members[0], after, "%s goes to nobody but the member that joins", node)
			assert.Equal(t, 1, rank(with, node, before), "who has lost %s is the next at it", node)
		}
		mean := float64(nodeCount) / float64(count+1)
		assert.InDelta(t, mean, moved, mean/4, "with %d others", count)
	}
}

func TestRanksAreAnOrderOfTheMembers(t *testing.T) {
	t.Parallel()
	members := random(2, 7)
	r := ring.NewRing(members...)
	for _, node := range nodes() {
		ranks := make([]int, 0, len(members))
		for _, m := range members {
			ranks = append(ranks, rank(r, node, m))
		}
		require.Zero(t, rank(r, node, owner(r, node)))
		slices.Sort(ranks)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, ranks)
		require.Equal(t, 7, rank(r, node, "a stranger"))
	}
}

func TestRingIsTheSameForEverybody(t *testing.T) {
	members := random(3, 5)
	reversed := slices.Clone(members)
	slices.Reverse(reversed)
	one, other := ring.NewRing(members...), ring.NewRing(append(reversed, members[0])...)
	assert.Equal(t, one.Members(), other.Members())
	for _, node := range nodes() {
		require.Equal(t, owner(one, node), owner(other, node))
	}
	// Replicas of different versions are to agree too: these places are not to change.
	fixed := ring.NewRing("a", "b", "c")
	assert.Equal(t, []string{"a", "c", "a"}, []string{owner(fixed, "node-1"), owner(fixed, "node-2"), owner(fixed, "node-3")})
}

func TestRingWithoutMembersHasNoOwners(t *testing.T) {
	for _, empty := range []*ring.Ring{{}, ring.NewRing()} {
		assert.Empty(t, empty.Members())
		assert.Empty(t, owner(empty, "node-1"))
		assert.Zero(t, rank(empty, "node-1", "me"))
	}
}

func TestLookUpDoesNotAllocate(t *testing.T) {
	members := random(4, 20)
	r := ring.NewRing(members...)
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = r.Place("node-4711", members[7]) }))
}

func BenchmarkLookUp(b *testing.B) {
	for _, count := range []int{3, 20} {
		members := random(5, count)
		r := ring.NewRing(members...)
		b.Run(fmt.Sprintf("members=%d", count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = r.Place("node-4711", members[0])
			}
		})
	}
}

func BenchmarkNewRing(b *testing.B) {
	members := random(6, 20)
	b.ReportAllocs()
	for b.Loop() {
		_ = ring.NewRing(members...)
	}
}
