package ring

import (
	"slices"

	"nodekeeper.dev/internal/ring/hashring"
)

// Place is where a member stands for a key.
type Place struct {
	// Owner is the ready member that comes first, or "" if none is known.
	Owner string
	// Rank is how many ready members come before this one: 0 for the owner, and for a member that
	// knows of none.
	Rank int
	// Unready reports whether a member that is expired or uncertain comes before this one. However
	// many of these there are, they deserve one delay together: most of them are gone.
	Unready bool
}

// View is what one member knows of its group at a time. It is immutable and safe for concurrent
// use. The zero value knows of nobody.
type View struct {
	name       string
	ready, all hashring.Ring
	unready    bool // whether all has members that ready has not
}

// newView returns the view of the named member. Only members that serve are in ready and unready.
// The rings of the view before are reused if they have the same members: a ring costs a thousand
// hashes per member.
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

// Place returns where the member stands for a key. It does not allocate.
func (v *View) Place(key string) Place {
	owner, rank := v.ready.Place(key, v.name)
	p := Place{Owner: owner, Rank: rank}
	if v.unready {
		p.Unready = v.all.Rank(key, v.name) > rank
	}
	return p
}

// Ready returns the names of the members that are ready and serve, sorted.
func (v *View) Ready() []string { return v.ready.Members() }

// Members returns the names of all members that serve, also of those that are expired or uncertain,
// sorted.
func (v *View) Members() []string { return v.all.Members() }
