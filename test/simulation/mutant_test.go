package simulation

import (
	"maps"
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// mutant is the real system with one broken rule. The zero value has no broken rule.
type mutant struct {
	// narrow restricts the schedules for faults that take a rare combination; nil: no restriction.
	narrow func(s *settings)
	// script is a schedule that exposes the mutant if random schedules do not; nil: random schedules
	// do.
	script func(s *script)
	// decide and note get the results of the real rules.
	decide func(t txn.Transaction, r *record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision
	note   func(t txn.Transaction, r record.Record, n nodeview.Node, next record.Record) record.Record
	// observe and catchUp get the results of the real watcher.
	observe func(before, after *nodeview.Node, isRelist bool, transactions []txn.Transaction) []txn.Transaction
	catchUp func(a *watcherActor, listed *nodeview.Node, r *record.Record, transactions []txn.Transaction) []txn.Transaction

	// faults of a processor
	dropsOnCache, restoresFromCache, recordFirst, removesFirst, removesByName, newestFirst bool
	patchesBlindly, savesBlindly, notesNothing, savesThenReads, seesParts                  bool
	patchesOverMarkers, patchesUnderTaints, neverRechecks                                  bool
	knowsOneHistory, ignoresEarlier, skipsQueuedEdits                                      bool
	// admit gets the answer of the webhook.
	admit func(r record.Record, req preserve.Request, answer preserve.Admission) preserve.Admission
	// plan gets the real plan.
	plan                                                       func([]preserve.Step) []preserve.Step
	letsGoFirst, letsGoBlindly, letsGoCached, ignoresLateEdits bool
	overtakesQueue, trustsRecords, trustsMarkers, ignoresOwn   bool
	mergesAll                                                  bool
	// faults of actors that remove records
	looksFirst, leavesNoFloor bool
	// faults of a watcher
	recordsFirst, trustsNames, ignoresQueue, leavesForGood                    bool
	leavesAdmitted, trustsTombstones                                          bool
	noBarrier, holdsConclusions, replacesBarrier                              bool
	trustsDigests, answersEarly, forgetsProtectors, trustsLabels, trustsGates bool
	knowsMembersFirst, listsAgain, staysAway, ignoresHeld, believesAhead      bool
	// write gets the record that a processor knows and the one that it writes.
	write func(before, next record.Record) record.Record
	// faults of dry runs
	triesAll, blamesFirst, trustsAnswers bool
	// faults in giving labels back
	givesNothingBack, givesBackOnce, givesBackToTool bool
	// copiesMerged counts a marker whose setter is unknown as copied.
	copiesMerged bool
	// faults of the quarantine
	keepsNames, deletesFirst bool
	// knows reports which further transactions the watcher assumes to be stored.
	knows func(t txn.Transaction, r *record.Record, queue []*storedTxn) bool
}

func (m mutant) among(narrow func(s *settings)) mutant {
	m.narrow = narrow
	return m
}

// shownBy sets the script of a mutant that random schedules hardly ever expose.
func (m mutant) shownBy(steps func(*script)) mutant {
	m.script = steps
	return m
}

// saving returns a mutant of the rows of Save that apply if there is a record.
func saving(f func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision) mutant {
	return mutant{decide: func(t txn.Transaction, r *record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if r == nil || r.Floor || t.Type == txn.Added {
			return d
		}
		return f(t, *r, d)
	}}
}

// forgetting returns a mutant of Save that stores nothing in one case.
func forgetting(isCase func(t txn.Transaction, r record.Record) bool) mutant {
	return saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if isCase(t, r) {
			return nothing
		}
		return d
	})
}

// believing returns a mutant of Save that stores labels in one case in which the real rules drop
// them.
func believing(isCase func(t txn.Transaction, r record.Record) bool) mutant {
	return saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Nothing && isCase(t, r) {
			return saved(captured(t))
		}
		return d
	})
}

// planning returns a mutant of the plan.
func planning(f func([]preserve.Step) []preserve.Step) mutant { return mutant{plan: f} }

// founding returns a mutant of the row that applies if there is no record.
func founding(f func(t txn.Transaction, d preserve.Decision) preserve.Decision) mutant {
	return mutant{decide: func(t txn.Transaction, r *record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if r != nil && !r.Floor {
			return d
		}
		return f(t, d)
	}}
}

// restoring returns a mutant of the rows of Restore.
func restoring(f func(t txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision) mutant {
	return mutant{decide: func(t txn.Transaction, r *record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if r == nil || r.Floor || t.Type != txn.Added {
			return d
		}
		return f(t, *r, n, d)
	}}
}

// restoringLabels returns a mutant that changes the two sides that a restore merges.
func restoringLabels(f func(live, saved labels.Side) (labels.Side, labels.Side)) mutant {
	return restoring(func(_ txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			d.Labels = policy.Restored(f(labels.Side{Labels: n.Labels, Machine: n.Machine, Unclear: n.Unclear, Edited: n.Edited}, preserve.Saved(r)))
		}
		return d
	})
}

// observing returns a mutant of a watcher's handling of an event.
func observing(f func(before, after *nodeview.Node, isRelist bool, transactions []txn.Transaction) []txn.Transaction) mutant {
	return mutant{observe: f}
}

// knowing returns a mutant that considers further transactions stored because of a cached record.
func knowing(isKnown func(t txn.Transaction, r record.Record) bool) mutant {
	return mutant{knows: func(t txn.Transaction, r *record.Record, _ []*storedTxn) bool { return r != nil && isKnown(t, *r) }}
}

// knowingQueue returns a mutant that considers further transactions stored because of a cached
// transaction.
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

func restored(r record.Record, n *nodeview.Node) preserve.Decision {
	return preserve.Decision{Action: preserve.Restore, Labels: policy.Restored(labels.Side{Labels: n.Labels, Machine: n.Machine, Unclear: n.Unclear, Edited: n.Edited}, preserve.Saved(r)), Marker: r.Revision.String()}
}

// onlyNoted notes a restore without regard to the Node's labels.
func onlyNoted(r record.Record, n nodeview.Node) record.Record {
	r.Restored = record.Restoration{UID: n.UID, Revision: n.Revision}
	return r
}

// atTransaction returns a record with the transaction's resourceVersion in place of the Node's.
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

// replaces reports whether a decision replaces the contents of the record.
func replaces(d preserve.Decision, r record.Record) bool {
	return d.Action == preserve.Save && d.Record.Revision != r.Revision
}
