package preserve

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
)

// SetAside returns the record from which a restore onto a Node goes on after the API server has
// refused to set some labels: these are withheld from this incarnation, and tried again on the next
// one. A label that cannot be removed stays, see [record.Withheld.IsLeft]. The record must be stored
// before the restore, so that they are not lost if the restore is not noted. It returns false if
// there is no room to withhold them. The refusals are the reasons by key, see [record.Refusal].
func SetAside(r record.Record, n *nodeview.Node, refusals map[string]string, p labels.Policy) (record.Record, bool) {
	next := r
	next.Withheld = nil
	refused := labels.KeysOf(maps.Keys(refusals))
	isRefused := refused.Set()
	for _, w := range r.Withheld {
		rest := w
		if w.State.IsDecidedFor(n.UID) {
			w.Labels, rest.Labels = divided(w.Labels, isRefused)
			next.Withheld = withRefused(next.Withheld, w, n, refusals)
		}
		if len(rest.Labels) > 0 {
			next.Withheld = append(next.Withheld, rest)
		}
	}
	bound := boundOf(r.Labels, r.Machine, p.MachineBound)
	moved, left := divided(r.Labels, isRefused)
	dropWithheld(moved, r)
	ofMachine, ofName := divided(moved, labels.KeysOf(maps.Keys(bound)).Set())
	next.Withheld = withRefused(next.Withheld, record.Withheld{Labels: ofMachine, Source: followed(r), Identity: r.Identity.Identity}, n, refusals)
	next.Withheld = withRefused(next.Withheld, record.Withheld{Labels: ofName, Source: followed(r)}, n, refusals)
	own, _ := divided(n.Labels, isRefused)
	beside, unremoved := divided(own, refusedKeys(next, n).Set())
	next.Withheld = withRefused(next.Withheld, record.Withheld{Labels: unremoved, Source: n.UID}, n, refusals)
	// What the Node has instead is no change by a user, see newerThan.
	maps.Copy(left, beside)
	ofNode := func(key string) bool { _, isBeside := beside[key]; return isBeside }
	next.Labels = left
	next.Machine = r.Machine.Without(refused).Union(n.Machine.Where(ofNode))
	next.Unclear = r.Unclear.Without(refused).Union(n.Unclear.Where(ofNode))
	_, without := record.Bounded(next.Withheld)
	return next, without == "" && !next.Equal(r)
}

// withoutBeside returns a record without the values that a former Node had instead of refused labels,
// when these are tried again.
func withoutBeside(r record.Record, w record.Withheld) record.Record {
	keys := labels.KeysOf(maps.Keys(w.Labels))
	if w.State.IsRefused() && keys.Missing(r.Labels) != keys {
		_, r.Labels = divided(r.Labels, keys.Set())
		r.Machine, r.Unclear = r.Machine.Without(keys), r.Unclear.Without(keys)
	}
	return r
}

// HasRefused reports whether labels are refused on an incarnation.
func HasRefused(r record.Record, uid types.UID) bool {
	return slices.ContainsFunc(r.Withheld, func(w record.Withheld) bool { return w.State.IsRefusedFor(uid) })
}

// sideWithRefused is like sideOfNode, with the labels of the webhook that the API server has refused
// to change.
func sideWithRefused(r record.Record, n *nodeview.Node) labels.Side {
	side := sideOfNode(n)
	if n.Admitted == "" {
		return side
	}
	stays, _ := divided(n.Labels, refusedKeys(r, n).Set())
	maps.Copy(side.Labels, stays) // a copy, since the webhook has set some of them
	return side
}

// refusedKeys returns the keys of the labels that are refused on a Node.
func refusedKeys(r record.Record, n *nodeview.Node) labels.Keys {
	r.Withheld = slices.DeleteFunc(slices.Clone(r.Withheld), func(w record.Withheld) bool { return !w.State.IsRefusedFor(n.UID) })
	return r.WithheldKeys()
}

// withRefused adds a set of refused labels, if it has any.
func withRefused(sets []record.Withheld, w record.Withheld, n *nodeview.Node, refusals map[string]string) []record.Withheld {
	if len(w.Labels) == 0 {
		return sets
	}
	w.State, w.Refusals = record.RefusedFor(n.UID), refusals
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
