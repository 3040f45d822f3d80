package preserve

import (
	"maps"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

// GivenAfter returns a record after a person has given it these labels, see [Given] and [Edited]. The
// restricted labels that the person has named belong to the name from then on. The others still belong
// to the machine that they were saved from.
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
	next.Withheld = record.Bounded(next.Withheld)
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
	allOf := func(r record.Record) (all map[string]string, bound labels.Keys) {
		all, bound = r.All(), r.WithheldKeys()
		if isBound(r) {
			bound = bound.Union(labels.KeysOf(maps.Keys(restrictedOf(r.Labels, r.Machine))))
		}
		return all, bound
	}
	one, boundOne := allOf(a)
	other, boundOther := allOf(b)
	return maps.Equal(one, other) && boundOne == boundOther &&
		a.Machine == b.Machine && a.Unclear == b.Unclear && a.Overruled == b.Overruled
}
