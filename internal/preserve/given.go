package preserve

import (
	"maps"

	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

// GivenAfter returns a record after a person has given it these labels, see [Given] and [Edited]. The
// restricted labels that the person has named belong to the name from then on. The others still belong
// to the machine that they were saved from, and a record may have no room for so many: see
// [record.Bounded].
func GivenAfter(r record.Record, edited map[string]string, named labels.Keys, now revision.Revision) record.Record {
	next := Given(r.Node, Edited(Saved(r), edited, named), now)
	isNamed := named.Set()
	for _, w := range Apart(r) {
		maps.DeleteFunc(w.Labels, func(key, _ string) bool { return isNamed[key] })
		if len(w.Labels) > 0 {
			next.Withheld = append(next.Withheld, w)
		}
	}
	if isBound(r) {
		moved := restrictedOf(next.Labels, next.Machine)
		maps.DeleteFunc(moved, func(key, _ string) bool { return isNamed[key] })
		withhold(&next, r, moved)
	}
	return next
}

// Apart returns copies of the withheld labels of a record, for one that follows no incarnation.
func Apart(r record.Record) []record.Withheld {
	sets := make([]record.Withheld, 0, len(r.Withheld))
	for _, w := range r.Withheld {
		sets = append(sets, record.Withheld{Labels: maps.Clone(w.Labels), Source: w.Source, Identity: w.Identity})
	}
	return sets
}

// SaysTheSame reports whether two records save the same labels, of the same people, agents and
// machines.
func SaysTheSame(a, b record.Record) bool {
	return maps.Equal(owned(a), owned(b)) && a.Machine == b.Machine && a.Unclear == b.Unclear && a.Overruled == b.Overruled
}

// ownedLabel is a label that is saved, and of which machine, if it belongs to one.
type ownedLabel struct {
	value   string
	isBound bool
	machine identity.Identity
}

// owned returns all labels that are saved, withheld ones too.
func owned(r record.Record) map[string]ownedLabel {
	all := make(map[string]ownedLabel, len(r.Labels))
	for key, value := range r.Labels {
		all[key] = ownedLabel{value: value}
	}
	if isBound(r) {
		for key, value := range restrictedOf(r.Labels, r.Machine) {
			all[key] = ownedLabel{value, true, r.Identity.Identity}
		}
	}
	for _, w := range r.Withheld {
		for key, value := range w.Labels {
			all[key] = ownedLabel{value, true, w.Identity}
		}
	}
	return all
}
