package ring

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// tokens is how many places on the ring a member has. With 100 every second ring of 20 members has one whose share of 5,000 nodes is
// more than a quarter off the mean, and some one whose share is half off; with 1,000 it is one of 200 rings, by the chance of the nodes.
const tokens = 1000

// Ring is where the members of a group stand. It does not change, and is safe for concurrent use. The zero value has no members.
type Ring struct {
	members []member // by name
}

type member struct {
	name   string
	tokens []uint64 // sorted
}

// NewRing returns a ring of these members. The order of the names and their repetitions do not matter.
func NewRing(names ...string) *Ring {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	r := &Ring{members: make([]member, len(names))}
	for i, name := range names {
		r.members[i] = member{name: name, tokens: tokensOf(name)}
	}
	return r
}

func tokensOf(name string) []uint64 {
	all := make([]uint64, tokens)
	for i := range all {
		all[i] = xxhash.Sum64String(name + "/" + strconv.Itoa(i)) // no name has a slash
	}
	slices.Sort(all)
	return all
}

// Place returns the owner of a key, and how many members come before the one of that name, clockwise from the place of the key: the
// owner's rank is 0. One that is not on the ring comes after all others. On a ring without members the owner is "". It does not
// allocate.
func (r *Ring) Place(key, name string) (owner string, rank int) {
	place := xxhash.Sum64String(key)
	own, ownIndex := uint64(math.MaxUint64), len(r.members)
	if i, ok := slices.BinarySearchFunc(r.members, name, func(m member, name string) int { return cmp.Compare(m.name, name) }); ok {
		own, ownIndex = r.members[i].distance(place), i
	}
	least := uint64(0)
	for i := range r.members {
		d := r.members[i].distance(place)
		if owner == "" || d < least {
			owner, least = r.members[i].name, d
		}
		if d < own || d == own && i < ownIndex {
			rank++
		}
	}
	return owner, rank
}

// Members returns the names of the members, sorted.
func (r *Ring) Members() []string {
	names := make([]string, 0, len(r.members))
	for i := range r.members {
		names = append(names, r.members[i].name)
	}
	return names
}

// distance is how far it is clockwise from a place to the next token of the member.
func (m *member) distance(place uint64) uint64 {
	i, _ := slices.BinarySearch(m.tokens, place)
	return m.tokens[i%len(m.tokens)] - place // modulo 2^64, as the ring goes round
}
