package simulation

import (
	"maps"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// refusing returns a mutant that changes the withheld labels of every record that is written.
func refusing(f func(before, next record.Record) []record.Withheld) mutant {
	return mutant{
		narrow: refusals,
		write: func(before, next record.Record) record.Record {
			next.Withheld = f(before, next)
			return next
		},
	}
}

// withoutRefused returns the sets that are not refused.
func withoutRefused(sets []record.Withheld) (others []record.Withheld) {
	for _, w := range sets {
		if !w.State.IsRefused() {
			others = append(others, w)
		}
	}
	return others
}

// refusedMutants break the rules about labels that the API server refuses. They are part of
// [mutants].
var refusedMutants = map[string]mutant{
	"refused: the label is forgotten": refusing(func(_, next record.Record) []record.Withheld { return withoutRefused(next.Withheld) }),
	"refused: the label is forgotten with the next state": refusing(func(before, next record.Record) []record.Withheld {
		if before.Revision != next.Revision {
			return withoutRefused(next.Withheld)
		}
		return next.Withheld
	}),
	"refused: the label is asked for again": refusing(func(_, next record.Record) []record.Withheld {
		var sets []record.Withheld
		for _, w := range next.Withheld {
			if w.State.IsRefused() {
				w.State = record.Kept
			}
			sets = append(sets, w)
		}
		return sets
	}),
	"refused: the label is never tried again": narrowed(refusals, restoring(func(_ txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if n == nil || d.Action != preserve.Save || !d.Again {
			return d
		}
		for i, w := range r.Withheld {
			if w.State.IsRefused() && !w.IsLeft() && i < len(d.Record.Withheld) && d.Record.Withheld[i].State.IsDecidedFor(n.UID) {
				d.Record.Withheld[i].State = record.RefusedFor(n.UID)
			}
		}
		return d
	})),
	"refused: a value of the node replaces the label": refusing(func(_, next record.Record) []record.Withheld {
		var sets []record.Withheld
		for _, w := range next.Withheld {
			w.Labels = maps.Clone(w.Labels)
			maps.DeleteFunc(w.Labels, func(key, _ string) bool { _, isThere := next.Labels[key]; return isThere && w.State.IsRefused() })
			if len(w.Labels) > 0 {
				sets = append(sets, w)
			}
		}
		return sets
	}),
	"refused: what a user sets does not replace the label": refusing(func(before, next record.Record) []record.Withheld {
		sets, has := next.Withheld, next.WithheldKeys()
		for _, w := range before.Withheld {
			w.Labels = maps.Clone(w.Labels)
			maps.DeleteFunc(w.Labels, func(key, _ string) bool { return has.Has(key) })
			if w.State.IsRefused() && len(w.Labels) > 0 && before.Revision != next.Revision {
				sets = append(sets, w)
			}
		}
		return sets
	}),
	"refused: a label that cannot be removed is put onto the next node": refusing(func(before, next record.Record) []record.Withheld {
		for i, w := range next.Withheld {
			if w.IsLeft() {
				next.Withheld[i].Source = before.Source
			}
		}
		return next.Withheld
	}),
	"refused: every label waits for the refused one": {narrow: refusals, triesAll: true},
	"refused: what an answer names is refused":       {narrow: refusals, trustsAnswers: true},
	"refused: a dry run blames the first label":      {narrow: refusals, blamesFirst: true},
}
