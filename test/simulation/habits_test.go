package simulation

import (
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// breaks is the state that the broken rules of a processor need about the transactions that it
// applies.
type breaks struct {
	transactions []txn.Transaction
	before       *storedRecord  // when the Node was last read
	restored     *nodeview.Node // the result of a restore, until the record is written
	conflicted   bool
	saved        bool // a record was written
	seeks        bool // a restore was refused, and it is not known why
	tries, aside int  // dry runs since then, and labels that were set aside
	changed      int  // the labels that the restore would have changed
	relabelled   bool // a restore was done
}

// decision returns the decision of the real rules, as changed by the mutant.
func (a *processorActor) decision(t txn.Transaction, r *record.Record, n *nodeview.Node) preserve.Decision {
	d := preserve.Decide(t, r, n, policy)
	if a.mutant.decide != nil {
		d = a.mutant.decide(t, r, n, d)
	}
	return d
}

// mutantPlan returns the plan function of a mutant, or nil for the real one.
func (a *processorActor) mutantPlan() func(revision.Revision, []txn.Transaction, *record.Record, *nodeview.Node) []preserve.Step {
	if a.mutant.decide == nil && a.mutant.plan == nil && !a.mutant.knowsOneHistory {
		return nil
	}
	return func(now revision.Revision, queue []txn.Transaction, r *record.Record, n *nodeview.Node) []preserve.Step {
		if a.mutant.knowsOneHistory {
			now = revision.Revision{}
		}
		steps := preserve.PlanBy(preserve.At(now, policy, a.decision), queue, r, n, policy.MachineBound)
		if a.mutant.plan != nil {
			steps = a.mutant.plan(steps)
		}
		return steps
	}
}

// mutantRecord returns the record that a mutant uses in place of a live read.
func (a *processorActor) mutantRecord() (*storedRecord, bool) {
	restores := slices.ContainsFunc(a.broken.transactions, func(t txn.Transaction) bool { return t.Type == txn.Added })
	switch {
	case a.mutant.dropsOnCache && !a.broken.conflicted, a.mutant.restoresFromCache && restores && !a.broken.conflicted:
		return a.record, true
	case a.mutant.recordFirst && restores:
		return a.broken.before, true
	}
	return nil, false
}

// mutantRead returns the Node that a restore is conditional on.
func (a *processorActor) mutantRead(read *nodeview.Node, wanted map[string]string) *nodeview.Node {
	now := a.world.node
	switch {
	case now == nil:
	case a.mutant.patchesBlindly:
		return now
	case a.mutant.patchesOverMarkers && now.UID == read.UID:
		marked := *read
		marked.Marker = now.Marker
		return &marked
	case a.mutant.patchesUnderTaints && now.UID == read.UID && now.Marker == read.Marker:
		unchanged := *read
		unchanged.Revision = now.Revision
		return &unchanged
	case a.mutant.savesThenReads && a.broken.saved && now.UID == read.UID && now.Marker != wanted[labels.Marker]:
		return now // the Node is read after the save, without its record
	}
	return read
}

// mutantQueue returns the cached queue of a mutant, which may be an incomplete list.
func (a *processorActor) mutantQueue(all []*storedTxn) []*storedTxn {
	if !a.mutant.seesParts || !a.choices.happens(16) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(*storedTxn) bool { return a.choices.happens(32) })
}

// mutantNote returns the record that is written after a restore.
func (a *processorActor) mutantNote(read records.Stored, next record.Record) record.Record {
	n := a.broken.restored
	if n == nil || a.mutant.note == nil {
		return next
	}
	i := slices.IndexFunc(a.broken.transactions, func(t txn.Transaction) bool { return t.Type == txn.Added && t.UID == n.UID })
	return a.mutant.note(a.broken.transactions[i], *read.Record, *n, next)
}
