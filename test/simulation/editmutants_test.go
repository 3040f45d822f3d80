package simulation

import (
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// editMutants break the rules about what users edit before a restore, and about earlier records that
// take the place of later ones. They are part of [mutants].
var editMutants = map[string]mutant{
	"edits: what was edited before a restore is overwritten": restoringLabels(func(live, saved labels.Side) (labels.Side, labels.Side) {
		live.Edited = ""
		return live, saved
	}).among(editedEarly),
	"backup: an earlier record is restored over a later one": restoring(func(_ txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Save && n != nil && n.IsRestored() && isAfter(n.Marker, r.Revision.String()) {
			return restored(r, n)
		}
		return d
	}).among(backups).shownBy(returnsThenRestarts),
	"backup: a marker that an unknown manager has set counts as copied": mutant{copiesMerged: true}.among(backups),
	"backup: the end of a node that has its labels from a later record does not count": forgetting(func(t txn.Transaction, r record.Record) bool {
		return isStranger(t, r) && t.Restored && isAfter(t.Marker, r.Revision.String())
	}).among(backups),
}
