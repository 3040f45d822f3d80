package simulation

import (
	"maps"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// agentMutants break the rules about the ownership of labels. They are part of [mutants].
var agentMutants = map[string]mutant{
	"agents: the machine's word is overwritten": restoringLabels(func(live, saved labels.Side) (labels.Side, labels.Side) {
		live.Machine = ""
		return live, saved
	}),
	"agents: a former machine's word is put back": restoringLabels(func(live, saved labels.Side) (labels.Side, labels.Side) {
		saved.Machine = ""
		return live, saved
	}),
	"agents: a person's word does not count": restoringLabels(func(live, saved labels.Side) (labels.Side, labels.Side) {
		saved.Machine = agentKeys
		return live, saved
	}),
	"agents: every label of the node stays": restoringLabels(func(live, saved labels.Side) (labels.Side, labels.Side) {
		live.Machine = labels.KeysOf(maps.Keys(live.Labels))
		return live, saved
	}),
	"agents: those of a save are not known": saving(func(_ txn.Transaction, _ record.Record, d preserve.Decision) preserve.Decision {
		d.Record.Machine = ""
		return d
	}),
	"agents: those of the save before stay": saving(func(_ txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		d.Record.Machine = r.Machine
		return d
	}),
	"agents: what a person removed is forgotten": {
		decide: func(_ txn.Transaction, _ *record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
			d.Record.Overruled = ""
			return d
		},
		note: func(_ txn.Transaction, _ record.Record, _ nodeview.Node, next record.Record) record.Record {
			next.Overruled = ""
			return next
		},
	},
	"agents: what was copied from the former machine is a person's": narrowed(copiedNodes, mutant{
		decide: func(_ txn.Transaction, _ *record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
			d.Record = withoutCopies(d.Record)
			return d
		},
		note: func(_ txn.Transaction, _ record.Record, _ nodeview.Node, next record.Record) record.Record {
			return withoutCopies(next)
		},
	}),
	"agents: a copy counts only until the next save": narrowed(copiedNodes, saving(func(_ txn.Transaction, _ record.Record, d preserve.Decision) preserve.Decision {
		d.Record = withoutCopies(d.Record)
		return d
	})),
	"agents: a policy's old value is put back over the new one": narrowed(policiesAtCreation, restoringLabels(func(live, saved labels.Side) (labels.Side, labels.Side) {
		live.Unclear = ""
		return live, saved
	})),
	"agents: those of the former machine stay after a restore": {
		note: func(_ txn.Transaction, r record.Record, _ nodeview.Node, next record.Record) record.Record {
			next.Machine = r.Machine
			return next
		},
	},
}

// withoutCopies attributes the copied keys of a record to a person.
func withoutCopies(r record.Record) record.Record {
	copied := preserve.Saved(r).Copied
	r.Machine, r.Unclear = r.Machine.Without(copied), r.Unclear.Without(copied)
	return r
}
