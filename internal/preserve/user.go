package preserve

import (
	"maps"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

// UserRecordAfter returns a record after a user has set its labels, see [UserRecord] and [Edited].
// Labels of a machine that the user named now belong to the name. The others still belong to the
// machine that they were saved from; if there are too many, see [record.Bounded].
func UserRecordAfter(r record.Record, edited map[string]string, named labels.Keys, now revision.Revision, bound labels.MachineBound) record.Record {
	next := UserRecord(r.Node, Edited(Saved(r), edited, named), now)
	isNamed := named.Set()
	for _, w := range Apart(r) {
		maps.DeleteFunc(w.Labels, func(key, _ string) bool { return isNamed[key] })
		if len(w.Labels) > 0 {
			next.Withheld = append(next.Withheld, w)
		}
	}
	if isBound(r) {
		moved := boundOf(next.Labels, next.Machine, bound)
		maps.DeleteFunc(moved, func(key, _ string) bool { return isNamed[key] })
		withhold(&next, r, moved)
	}
	setOwners(&next, "", &r)
	next.Owners = next.Owners.Without(named)
	return next
}

// Apart returns copies of a record's withheld labels, for a record that follows no incarnation.
// Labels that were left on a Node were not saved.
func Apart(r record.Record) []record.Withheld {
	sets := make([]record.Withheld, 0, len(r.Withheld))
	for _, w := range r.Withheld {
		if w.IsLeft() {
			continue
		}
		sets = append(sets, record.Withheld{Labels: maps.Clone(w.Labels), Source: w.Source, Identity: w.Identity})
	}
	return sets
}

// Equivalent reports whether two records save the same labels with the same ownership.
func Equivalent(a, b record.Record, bound labels.MachineBound) bool {
	return maps.Equal(savedLabels(a, bound), savedLabels(b, bound)) && a.Machine == b.Machine && a.Unclear == b.Unclear && a.Overruled == b.Overruled
}

// savedLabel is a saved label and its machine, if it belongs to one.
type savedLabel struct {
	value   string
	isBound bool
	machine identity.Identity
}

// savedLabels returns all saved labels, including withheld ones.
func savedLabels(r record.Record, bound labels.MachineBound) map[string]savedLabel {
	all := make(map[string]savedLabel, len(r.Labels))
	for key, value := range r.Labels {
		all[key] = savedLabel{value: value}
	}
	if isBound(r) {
		for key, value := range boundOf(r.Labels, r.Machine, bound) {
			all[key] = savedLabel{value, true, r.Identity.Identity}
		}
	}
	for _, w := range r.Withheld {
		for key, value := range w.Labels {
			all[key] = savedLabel{value, true, w.Identity}
		}
	}
	return all
}
