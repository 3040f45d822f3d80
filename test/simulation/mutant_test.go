package simulation

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// mutant is the real system with one rule broken. The zero value has none broken.
type mutant struct {
	// among narrows what schedules draw, for what matters only where many things come together; nil: nothing is narrowed.
	narrow func(s *settings)
	// script is the schedule that shows the mutant, where random choice does not get there; nil: random schedules find it.
	script func(s *script)
	// decide and note are given what the real rules say.
	decide func(t txn.Transaction, r *record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision
	note   func(t txn.Transaction, r record.Record, n preserve.Node, next record.Record) record.Record
	// observe and catchUp are given what the real watcher makes of what it sees.
	observe func(before, after *metav1.PartialObjectMetadata, isRelist bool, transactions []txn.Transaction) []txn.Transaction
	catchUp func(a *watcherActor, listed *metav1.PartialObjectMetadata, r *record.Record, transactions []txn.Transaction) []txn.Transaction

	// bad habits of a processor
	dropsOnCache, restoresFromCache, recordFirst, removesFirst, removesByName, newestFirst bool
	patchesBlindly, savesBlindly, notesNothing, savesThenReads, seesParts                  bool
	neverLooks                                                                             bool
	// admit is given what the webhook answers.
	admit func(r record.Record, req preserve.Request, answer preserve.Admission) preserve.Admission
	// plan is given the real plan.
	plan                                                       func([]preserve.Step) []preserve.Step
	letsGoFirst, letsGoBlindly, letsGoCached, ignoresLateEdits bool
	overtakesQueue, trustsRecords, trustsMarkers, ignoresOwn   bool
	// bad habits of those who remove records
	looksFirst, leavesNoFloor bool
	// bad habits of a watcher
	recordsFirst, trustsNames, ignoresQueue, leavesForGood                    bool
	leavesAdmitted                                                            bool
	noBarrier, holdsConclusions, replacesBarrier                              bool
	trustsDigests, answersEarly, forgetsProtectors, trustsLabels, trustsGates bool
	knowsMembersFirst, keepsBarrier, staysAway                                bool
	// knows is what a watcher takes for stored, besides what the real one does.
	knows func(t txn.Transaction, r *record.Record, queue []*storedTxn) bool
}

func (m mutant) among(narrow func(s *settings)) mutant {
	m.narrow = narrow
	return m
}

// shownBy is for a mutant that random schedules hardly ever find.
func (m mutant) shownBy(steps func(*script)) mutant {
	m.script = steps
	return m
}

// saving is a mutant of the rows of Save where there is a record.
func saving(f func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision) mutant {
	return mutant{decide: func(t txn.Transaction, r *record.Record, _ *preserve.Node, d preserve.Decision) preserve.Decision {
		if r == nil || r.Floor || t.Type == txn.Added {
			return d
		}
		return f(t, *r, d)
	}}
}

// forgetting is a mutant of Save where nothing is stored in one case.
func forgetting(isCase func(t txn.Transaction, r record.Record) bool) mutant {
	return saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if isCase(t, r) {
			return nothing
		}
		return d
	})
}

// believing is a mutant of Save where labels are stored in one case that the real rules drop.
func believing(isCase func(t txn.Transaction, r record.Record) bool) mutant {
	return saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Nothing && isCase(t, r) {
			return saved(captured(t))
		}
		return d
	})
}

// planning is a mutant of the plan.
func planning(f func([]preserve.Step) []preserve.Step) mutant { return mutant{plan: f} }

// founding is a mutant of the row where there is no record.
func founding(f func(t txn.Transaction, d preserve.Decision) preserve.Decision) mutant {
	return mutant{decide: func(t txn.Transaction, r *record.Record, _ *preserve.Node, d preserve.Decision) preserve.Decision {
		if r != nil && !r.Floor {
			return d
		}
		return f(t, d)
	}}
}

// restoring is a mutant of the rows of Restore.
func restoring(f func(t txn.Transaction, r record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision) mutant {
	return mutant{decide: func(t txn.Transaction, r *record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision {
		if r == nil || r.Floor || t.Type != txn.Added {
			return d
		}
		return f(t, *r, n, d)
	}}
}

// restoringLabels is a mutant of what a restore makes of what it knows of the two sides.
func restoringLabels(f func(live, saved labels.Side) (labels.Side, labels.Side)) mutant {
	return restoring(func(_ txn.Transaction, r record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			d.Labels = policy.Restored(f(labels.Side{Labels: n.Labels, Machine: n.Machine, Unclear: n.Unclear}, preserve.Saved(r)))
		}
		return d
	})
}

// observing is a mutant of what a watcher makes of an event.
func observing(f func(before, after *metav1.PartialObjectMetadata, isRelist bool, transactions []txn.Transaction) []txn.Transaction) mutant {
	return mutant{observe: f}
}

// knowing is a mutant of what a watcher takes for stored by a record that it has seen.
func knowing(isKnown func(t txn.Transaction, r record.Record) bool) mutant {
	return mutant{knows: func(t txn.Transaction, r *record.Record, _ []*storedTxn) bool { return r != nil && isKnown(t, *r) }}
}

// knowingQueue is a mutant of what a watcher takes for stored by a transaction that it has seen.
func knowingQueue(isKnown func(t, queued txn.Transaction) bool) mutant {
	return mutant{knows: func(t txn.Transaction, _ *record.Record, queue []*storedTxn) bool {
		return slices.ContainsFunc(queue, func(queued *storedTxn) bool { return isKnown(t, queued.Transaction) })
	}}
}

var nothing = preserve.Decision{Action: preserve.Nothing}

func saved(r record.Record) preserve.Decision {
	return preserve.Decision{Action: preserve.Save, Record: r}
}

func captured(t txn.Transaction) record.Record {
	return record.Record{Node: t.Node, Labels: t.Labels, Machine: t.Machine, Unclear: t.Unclear, Revision: t.Revision, Source: t.UID}
}

func restored(r record.Record, n *preserve.Node) preserve.Decision {
	return preserve.Decision{Action: preserve.Restore, Labels: policy.Restored(labels.Side{Labels: n.Labels, Machine: n.Machine, Unclear: n.Unclear}, preserve.Saved(r)), Marker: r.Revision.String()}
}

// onlyNoted is a note that takes no account of the Node's labels.
func onlyNoted(r record.Record, n preserve.Node) record.Record {
	r.Restored = record.Restoration{UID: n.UID, Revision: n.Revision}
	return r
}

// atTransaction is a record that has the transaction's resourceVersion for that of the Node.
func atTransaction(t txn.Transaction, next record.Record) record.Record {
	if next.Restored.UID == t.UID {
		next.Restored.Revision = t.Revision
	} else {
		next.Revision = t.Revision
	}
	return next
}

func isAfter(rv, other string) bool { return number(rv) > number(other) }

// The rows of Save that store something.

func isLaterOfSource(t txn.Transaction, r record.Record) bool {
	return t.UID == r.Source && isAfter(t.Revision.String(), r.Revision.String()) && isAfter(t.Revision.String(), r.Restored.Revision.String())
}

func isLaterOfRestored(t txn.Transaction, r record.Record) bool {
	return t.UID == r.Restored.UID && t.UID != r.Source && isAfter(t.Revision.String(), r.Restored.Revision.String())
}

func isLaterByMarker(t txn.Transaction, r record.Record) bool {
	return isStranger(t, r) && t.Marker == r.Revision.String() && isAfter(t.Revision.String(), r.Restored.Revision.String())
}

func isStranger(t txn.Transaction, r record.Record) bool {
	return t.UID != r.Source && t.UID != r.Restored.UID
}

func hasSameLabels(t txn.Transaction, r record.Record) bool { return maps.Equal(t.Labels, r.Labels) }

// replaces says whether a decision replaces what the record has.
func replaces(d preserve.Decision, r record.Record) bool {
	return d.Action == preserve.Save && d.Record.Revision != r.Revision
}
