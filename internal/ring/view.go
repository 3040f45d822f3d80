package ring

import (
	"slices"

	"nodekeeper.dev/internal/ring/hashring"
)

// Place is the position of a member for a key.
type Place struct {
	// Owner is the first ready member, or "" if none is known.
	Owner string
	// Rank is how many ready members precede this one: 0 for the owner, and if no other member is
	// known.
	Rank int
	// Unready reports whether an expired or uncertain member precedes this one. All of them
	// together deserve a single delay, because most of them are gone.
	Unready bool
}

// View is one member's view of its group at one time. It is immutable and safe for concurrent use.
// The zero value has no members.
type View struct {
	name       string
	ready, all hashring.Ring
	unready    bool // whether all has members that ready does not have
}

// newView returns the view of the named member. ready and unready contain only members that serve.
// The rings of the previous view are reused if they have the same members, because a ring takes a
// thousand hashes per member.
func newView(name string, ready, unready []string, before *View) *View {
	v := &View{name: name, ready: before.ready, all: before.all, unready: len(unready) > 0}
	slices.Sort(ready)
	if !slices.Equal(ready, v.ready.Members()) {
		v.ready = *hashring.New(ready...)
	}
	all := slices.Sorted(slices.Values(slices.Concat(ready, unready)))
	switch {
	case len(unready) == 0:
		v.all = v.ready
	case !slices.Equal(all, v.all.Members()):
		v.all = *hashring.New(all...)
	}
	return v
}

// Place returns the member's place for a key. It does not allocate.
func (v *View) Place(key string) Place {
	owner, rank := v.ready.Place(key, v.name)
	p := Place{Owner: owner, Rank: rank}
	if v.unready {
		p.Unready = v.all.Rank(key, v.name) > rank
	}
	return p
}

// Ready returns the names of the ready members that serve, sorted.
func (v *View) Ready() []string { return v.ready.Members() }

// Members returns the names of all members that serve, including expired and uncertain ones,
// sorted.
func (v *View) Members() []string { return v.all.Members() }
