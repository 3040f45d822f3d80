package preserve

import (
	"maps"
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
)

// SetAside returns the record from which a restore onto a Node goes on after the API server has
// refused to set some labels: these are withheld from this incarnation, and tried again on the next
// one. A label that cannot be removed stays. The record must be stored before the restore, so that
// they are not lost if the restore is not noted. It returns false if there is no room to withhold
// them.
func SetAside(r record.Record, n *Node, refused labels.Keys, p labels.Policy) (record.Record, bool) {
	next := r
	next.Withheld = nil
	isRefused := refused.Set()
	for _, w := range r.Withheld {
		rest := w
		if w.State.IsDecidedFor(n.UID) {
			w.Labels, rest.Labels = divided(w.Labels, isRefused)
			next.Withheld = withRefused(next.Withheld, w, n)
		}
		if len(rest.Labels) > 0 {
			next.Withheld = append(next.Withheld, rest)
		}
	}
	bound := boundOf(r.Labels, r.Machine, p.MachineBound)
	moved, left := divided(r.Labels, isRefused)
	for key := range refused.All() {
		value, isThere := n.Labels[key]
		if _, isSaved := moved[key]; isThere && !isSaved { // it cannot be removed, so it stays
			moved[key] = value
		}
	}
	dropWithheld(moved, r)
	ofMachine, ofName := divided(moved, labels.KeysOf(maps.Keys(bound)).Set())
	next.Labels, next.Machine = left, r.Machine.Without(refused)
	next.Withheld = withRefused(next.Withheld, record.Withheld{Labels: ofMachine, Source: followed(r), Identity: r.Identity.Identity}, n)
	next.Withheld = withRefused(next.Withheld, record.Withheld{Labels: ofName, Source: followed(r)}, n)
	_, without := record.Bounded(next.Withheld)
	return next, without == "" && !next.Equal(r)
}

// withRefused adds a set of refused labels, if it has any.
func withRefused(sets []record.Withheld, w record.Withheld, n *Node) []record.Withheld {
	if len(w.Labels) == 0 {
		return sets
	}
	w.State = record.RefusedFor(n.UID)
	return slices.Insert(sets, 0, w) // the newest first
}

// divided returns the labels with the keys, and the others.
func divided(all map[string]string, keys map[string]bool) (with, without map[string]string) {
	with, without = map[string]string{}, map[string]string{}
	for key, value := range all {
		if keys[key] {
			with[key] = value
		} else {
			without[key] = value
		}
	}
	return with, without
}
