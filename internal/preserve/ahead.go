package preserve

import (
	"cmp"
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// beginning is before every revision of a Node: an empty etcd has it.
var beginning = revision.MustParse("1")

// Ahead reports whether a record, nil if none exists, has a revision after now, the revision of all
// Nodes at a moment after the record was read. The record is then of an earlier history: the
// revisions of the cluster have started again since, or a user has mistyped one.
func Ahead(r *record.Record, now revision.Revision) bool {
	return r != nil && revision.Max(r.Revision, r.Restored.Revision).After(now)
}

// PlanAt is like [Plan], for a record and transactions some of which may be of an earlier history.
// now is the revision of all Nodes at a moment after all of them were read, zero if unknown.
// Transactions of an earlier history must come first.
func PlanAt(now revision.Revision, queue []txn.Transaction, r *record.Record, n *nodeview.Node, policy labels.Policy) []Step {
	decide := func(t txn.Transaction, r *record.Record, n *nodeview.Node) Decision { return Decide(t, r, n, policy) }
	return PlanBy(At(now, policy, decide), queue, r, n, policy.MachineBound)
}

// At extends a decision to records and transactions of an earlier history, see [PlanAt]. Among
// themselves these are decided as usual. Before a transaction of this history or of the live Node's
// start, the record gets revisions of this history. After that, a transaction of an earlier one no
// longer changes it. An end that supersedes some is decided in the same step: a renewed record no
// longer shows which of them it lacks.
func At(now revision.Revision, policy labels.Policy, decide DecideFunc) DecideFunc {
	if now.IsZero() {
		return decide
	}
	return func(t txn.Transaction, r *record.Record, n *nodeview.Node) Decision {
		isEarlier := t.Revision.After(now)
		isPresent := !isEarlier || t.Type == txn.Added && n != nil && n.UID == t.UID
		switch {
		case Ahead(r, now) && isPresent:
			isEnd := t.Superseded != nil
			t = merged(t, r) // while r still shows which of them it lacks
			next := renewed(t, *r, n, now, policy)
			d := save(next, "the record was of an earlier history")
			d.Again = true
			if isEnd {
				if end := decide(t, &next, n); end.Action == Save {
					d = end
				}
			}
			d.Renews = true
			return d
		case r == nil || Ahead(r, now) || !isEarlier:
		case t.Type == txn.Added:
			t.FoundsRecord = false // it may still be owed a restore
		default:
			return nothing("an event of an earlier history")
		}
		return decide(t, r, n)
	}
}

// renewed returns a record of an earlier history with revisions of this one. t is the first
// transaction of this history, and n the live Node, whose revision is not after now.
//
// A live Node that has its labels may have been edited since, so these are its current ones.
// Otherwise the labels stay, and the record still follows the same incarnation: all that this
// history has recorded of it is later, unless the record has its end.
func renewed(t txn.Transaction, r record.Record, n *nodeview.Node, now revision.Revision, policy labels.Policy) record.Record {
	if r.Floor {
		return record.Record{Node: r.Node, Revision: beginning, Floor: true}
	}
	r.Withheld = slices.Clone(r.Withheld)
	for i := range r.Withheld {
		switch s := &r.Withheld[i].State; {
		case s.RestoredAt().After(now):
			*s = record.RestoredBy(s.Marker(), beginning)
		case s.IsDecided() && revision.Of(s.Marker()).After(now) && (n == nil || n.Marker != s.Marker()):
			*s = record.WaitingFor(s.Awaits()) // decide again
		case s.IsUnconfirmed() && revision.Of(s.Marker()).After(now):
			*s = record.Kept
		}
	}
	if n != nil && !n.Unselected && Owned(r, n.UID, n.Marker) {
		current := txn.Transaction{
			Type: txn.Updated, Node: r.Node, UID: n.UID, Revision: n.Revision, Labels: n.Labels, Machine: n.Machine, Unclear: n.Unclear, Marker: n.Marker, Owners: n.Owners,
			ByProcessor: true,
		}
		if t.UID == n.UID && t.ByProcessor { // with what its end supersedes
			states := append(slices.Clone(statesOf(t)), current)
			current = Merged(t, current)
			current.States = states
		}
		return captured(withOverruled(current, removedPreserved(current, r, policy)), &r, n, policy)
	}
	last := record.Restoration{UID: cmp.Or(r.Restored.UID, r.Source), Revision: beginning}
	switch {
	case !isSourceOrRestored(r, t.UID) && t.Marker == r.Revision.String(): // restored, but not noted
		last.UID, r.Ended = t.UID, false
	case r.Ended && last.UID != t.UID && !t.Revision.After(now):
		last.Revision = t.Revision
	case r.Restored.UID != "" && !r.Restored.Revision.After(now):
		last.Revision = r.Restored.Revision
	}
	if last.UID == "" {
		last.Revision = revision.Revision{}
	}
	r.Revision, r.Source, r.Restored = now, "", last
	return r
}
