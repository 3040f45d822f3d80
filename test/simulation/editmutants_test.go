package simulation

import (
	"cmp"
	"maps"

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
	"edits: what was set and removed before a restore comes back": mutant{skipsQueuedEdits: true}.among(editedEarly),
	"edits: those of a node that ends before its restore are lost": savingEdits(func(record.Record, preserve.Decision) preserve.Decision {
		return nothing
	}),
	"edits: those of a node that ends before its restore do not move the version on": savingEdits(func(r record.Record, d preserve.Decision) preserve.Decision {
		d.Record.Revision = r.Revision
		return d
	}),
	"edits: what was removed before a restore comes back": savingEdits(func(r record.Record, d preserve.Decision) preserve.Decision {
		saved := maps.Clone(r.Labels)
		maps.Copy(saved, d.Record.Labels)
		d.Record.Labels = saved
		return d
	}),
	"edits: an end whose edits change nothing is not noted": forgetting(func(t txn.Transaction, r record.Record) bool {
		d := preserve.Decide(t, &r, nil, policy)
		return t.Type == txn.Deleted && isStranger(t, r) && d.IsNote()
	}).among(editedEarly),
	"edits: the end of an incarnation whose last state is on record is not noted": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if t.ByProcessor && d.Action == preserve.Save && d.Record.Ended && !r.Ended && t.Revision == cmp.Or(r.Restored.Revision, r.Revision) {
			return nothing
		}
		return d
	}).among(protectedOnly).shownBy(releasedAsSaved),
	"edits: those in the last state that was seen count": mutant{trustsTombstones: true}.among(editedEarly),
	"edits: a node that ends before its restore counts as restored": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if isSavingEdits(t, r, d) {
			return saved(captured(t))
		}
		return d
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

// isSavingEdits reports whether a decision saves what users have edited on an incarnation that has
// ended before its restore.
func isSavingEdits(t txn.Transaction, r record.Record, d preserve.Decision) bool {
	return t.Type == txn.Deleted && isStranger(t, r) && replaces(d, r) && d.Record.Source != t.UID
}

// savingEdits returns a mutant of the row of Save about these edits.
func savingEdits(f func(r record.Record, d preserve.Decision) preserve.Decision) mutant {
	return saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if isSavingEdits(t, r, d) {
			return f(r, d)
		}
		return d
	}).among(editedEarly)
}
