package simulation

import (
	"maps"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// preservedMutants break the rules about preserved annotations and taints. They are part of
// [mutants].
var preservedMutants = map[string]mutant{
	"preserved: it is not put back": narrowed(preserved, restoring(func(_ txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			other := policy
			other.Preserves = nil
			d.Labels = other.Restored(labels.Side{Labels: n.Labels, Machine: n.Machine, Unclear: n.Unclear}, preserve.Saved(r))
		}
		return d
	})),
	"preserved: what is not saved is taken away": narrowed(preserved, restoring(func(_ txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			d.Labels = maps.Clone(d.Labels)
			maps.DeleteFunc(d.Labels, func(key, _ string) bool { return !labels.IsLabel(key) && r.Labels[key] == "" })
		}
		return d
	})),
	"preserved: an unclear taint is a person's": narrowed(preserved, restoringLabels(func(live, saved labels.Side) (labels.Side, labels.Side) {
		saved.Unclear = ""
		return live, saved
	})),
}

// narrowed restricts the schedules of a mutant.
func narrowed(narrow func(*settings), m mutant) mutant {
	m.narrow = narrow
	return m
}
