package simulation

import (
	"maps"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// mutants are the rules of docs/design.md, each broken in turn. The name of a mutant
// describes its behavior.
//
// These are the rows of the tables of the decision and their conditions, from top to bottom, with
// their mutants:
//
//	Save
//	no record                                   no record: *
//	t.rv is not after R.restored.rv             save: what was before * counts (source, restored, unnoted)
//	t.uid = R.source, labels differ             save: a change of the source is dropped
//	  t.rv > R.version                          save: an older change of the source counts
//	t.uid = R.source, labels are equal          save: the same labels of the source, seen later, *
//	t.uid = R.restored.uid                      save: the restored incarnation does not count
//	  even if the labels are equal              save: the same labels of the restored incarnation *
//	t.marker = R.version                        save: a restore that is not noted does not count
//	  = R.version                               save: any marker counts
//	an end with edits                           edits: * (editMutants)
//	the end of a state that is on record        edits: the end of an incarnation whose * is not noted
//	anything else                               save: every incarnation counts
//	version, source, restored of the record     save: * stays, save: the restore is not forgotten
//	added, of a later state                     added: *
//
//	Restore
//	N is gone                                   (nothing could be written; another incarnation: the next one)
//	N is another incarnation                    restore: onto another incarnation
//	N.uid is R.source                           restore: onto the source
//	N.uid is R.restored.uid                     restore: onto the restored incarnation
//	N.rv is not after R.restored.rv             restore: noted after a later incarnation's
//	N.marker = R.version                        restore: the marker does not count, any marker counts
//	  labels differ                             restore: labels changed since are not saved
//	  version N's resourceVersion now           restore: * at the transaction's resourceVersion
//	  source N.uid, forget restored             restore: labels changed since are saved as *
//	  labels are equal                          restore: not noted after a crash
//	otherwise                                   restore: not done, without the marker, without the labels
//	  live labels                               restore: without the live labels
//	  whose they are                            agents: * (agentMutants)
//	  conditional on uid and resourceVersion    processor: patches unconditionally
//	  then store                                processor: does not note a restore, restore: only noted
//
// A floor
//
//	t.rv is not after its revision              floor: an event from before counts, floor: none is left
//	else as if there were no record             (the ghost: what comes after is saved; see the row "no record")
//
// The plan
//
//	the last save counts                      plan: the first of several saves is written
var mutants = with(map[string]mutant{
	"": {}, // the real rules

	"no record: none is made of a delete": founding(func(t txn.Transaction, d preserve.Decision) preserve.Decision {
		if t.Type == txn.Deleted {
			return nothing
		}
		return d
	}),
	"no record: none is made of an add": founding(func(t txn.Transaction, d preserve.Decision) preserve.Decision {
		if t.Type == txn.Added {
			return nothing
		}
		return d
	}),
	"no record: one is made of an add though no updates are recorded": founding(func(t txn.Transaction, d preserve.Decision) preserve.Decision {
		if t.Type == txn.Added {
			return saved(captured(t))
		}
		return d
	}),
	"save: what was before a restore counts, source": believing(func(t txn.Transaction, r record.Record) bool {
		return t.UID == r.Source && isAfter(t.Revision.String(), r.Revision.String())
	}),
	"save: what was before a restore counts, restored": believing(func(t txn.Transaction, r record.Record) bool {
		return t.UID == r.Restored.UID && t.UID != r.Source
	}),
	"save: what was before a restore counts, unnoted": believing(func(t txn.Transaction, r record.Record) bool {
		return isStranger(t, r) && t.Marker == r.Revision.String()
	}).among(quickSuccession),
	"save: a change of the source is dropped": forgetting(func(t txn.Transaction, r record.Record) bool {
		return isLaterOfSource(t, r) && !hasSameLabels(t, r)
	}),
	"save: an older change of the source counts": believing(func(t txn.Transaction, r record.Record) bool {
		return t.UID == r.Source && isAfter(t.Revision.String(), r.Restored.Revision.String())
	}),
	"save: the same labels of the source, seen later, are dropped": forgetting(func(t txn.Transaction, r record.Record) bool {
		return isLaterOfSource(t, r) && hasSameLabels(t, r)
	}),
	"save: the same labels of the source, seen later, move the version on": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Save && t.UID == r.Source {
			return saved(captured(t))
		}
		return d
	}).among(overtaken),
	"save: the restored incarnation does not count": forgetting(isLaterOfRestored),
	"save: the same labels of the restored incarnation are dropped": forgetting(func(t txn.Transaction, r record.Record) bool {
		return isLaterOfRestored(t, r) && hasSameLabels(t, r)
	}),
	"save: the same labels of the restored incarnation do not move the version on": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if isLaterOfRestored(t, r) && hasSameLabels(t, r) {
			return saved(onlyNoted(r, nodeview.Node{UID: t.UID, Revision: t.Revision}))
		}
		return d
	}),
	"save: a restore that is not noted does not count": forgetting(isLaterByMarker),
	"save: any marker counts": believing(func(t txn.Transaction, r record.Record) bool {
		return isStranger(t, r) && t.Marker != "" && isAfter(t.Revision.String(), r.Restored.Revision.String())
	}),
	"save: every incarnation counts": believing(func(t txn.Transaction, r record.Record) bool {
		return isStranger(t, r) && isAfter(t.Revision.String(), r.Revision.String()) && isAfter(t.Revision.String(), r.Restored.Revision.String())
	}),
	"save: the restore is not forgotten": saving(func(_ txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if replaces(d, r) {
			d.Record.Restored = r.Restored
		}
		return d
	}),
	"save: the source stays": saving(func(_ txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if replaces(d, r) {
			d.Record.Source = r.Source
		}
		return d
	}),
	"save: the version stays": saving(func(_ txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if replaces(d, r) {
			d.Record.Revision = r.Revision
		}
		return d
	}),
	"added: a later state is dropped": {narrow: fewIncarnations, decide: func(t txn.Transaction, r *record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if r != nil && !r.Floor && t.Type == txn.Added && d.Action == preserve.Save && !isStranger(t, *r) {
			return nothing
		}
		return d
	}},
	"added: every state of an incarnation that has its labels counts": restoring(func(t txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if !isStranger(t, r) && d.Action == preserve.Nothing {
			return saved(captured(t))
		}
		return d
	}),

	"restore: onto another incarnation": restoring(func(t txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if n != nil && n.UID != t.UID {
			return restored(r, n)
		}
		return d
	}),
	"restore: onto the source": restoring(func(t txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if n != nil && n.UID == t.UID && n.UID == r.Source {
			return restored(r, n)
		}
		return d
	}),
	"restore: onto the restored incarnation": restoring(func(t txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if n != nil && n.UID == t.UID && n.UID == r.Restored.UID && n.Marker != r.Revision.String() {
			return restored(r, n)
		}
		return d
	}),
	"restore: noted after a later incarnation's": {narrow: outageOnly, script: notesLate, decide: func(t txn.Transaction, r *record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if r != nil && d.Action == preserve.Nothing && t.Type == txn.Added && n != nil && n.UID == t.UID && isStranger(t, *r) && n.Marker == r.Revision.String() {
			return saved(preserve.Noted(*r, *n, *n, policy.MachineBound))
		}
		return d
	}},
	"restore: the marker does not count": restoring(func(t txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if isStranger(t, r) && d.Action == preserve.Save {
			return restored(r, n)
		}
		return d
	}),
	"restore: any marker counts": restoring(func(_ txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore && n.Marker != "" {
			return saved(onlyNoted(r, *n))
		}
		return d
	}),
	"restore: labels changed since are not saved": restoring(func(t txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if isStranger(t, r) && d.Action == preserve.Save {
			return saved(onlyNoted(r, *n))
		}
		return d
	}),
	"restore: labels changed since are saved as the source's": restoring(func(t txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if isStranger(t, r) && replaces(d, r) {
			d.Record.Source = r.Source
		}
		return d
	}),
	"restore: labels changed since are saved as restored onto another": restoring(func(t txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if isStranger(t, r) && replaces(d, r) {
			d.Record.Restored = r.Restored
		}
		return d
	}),
	"restore: noted after a crash at the transaction's resourceVersion": restoring(func(t txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if isStranger(t, r) && d.Action == preserve.Save {
			return saved(atTransaction(t, d.Record))
		}
		return d
	}),
	"restore: noted at the transaction's resourceVersion": {
		note: func(t txn.Transaction, _ record.Record, _ nodeview.Node, next record.Record) record.Record {
			return atTransaction(t, next)
		},
	},
	"restore: only noted, though a live label differs": {
		note: func(_ txn.Transaction, r record.Record, n nodeview.Node, _ record.Record) record.Record {
			return onlyNoted(r, n)
		},
	},
	"restore: not noted after a crash": restoring(func(t txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if isStranger(t, r) && d.Action == preserve.Save {
			return nothing
		}
		return d
	}),
	"restore: not done": restoring(func(_ txn.Transaction, _ record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			return nothing
		}
		return d
	}),
	"restore: without the marker": restoring(func(_ txn.Transaction, _ record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		d.Marker = ""
		return d
	}),
	"restore: without the labels": restoring(func(_ txn.Transaction, _ record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			d.Labels = n.Labels
		}
		return d
	}),
	"restore: without the live labels": restoring(func(_ txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			d.Labels = r.Labels
		}
		return d
	}),

	"plan: the first of several saves is written": planning(func(steps []preserve.Step) []preserve.Step {
		for i, step := range steps {
			for _, d := range step.Decisions {
				if step.Action == preserve.Save && d.Action == preserve.Save {
					steps[i].Decision = d
					break
				}
			}
		}
		return steps
	}),

	"floor: an event from before counts": {narrow: removals, decide: func(t txn.Transaction, r *record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if r != nil && r.Floor {
			return preserve.Decide(t, nil, n, policy)
		}
		return d
	}},
	"floor: none is left":                       {leavesNoFloor: true, narrow: removals},
	"removal: reads the node before the record": {looksFirst: true, narrow: removals},

	"processor: drops on a cached read":                 {dropsOnCache: true},
	"processor: restores from a cached record":          {restoresFromCache: true},
	"processor: reads the record before the node":       {recordFirst: true},
	"processor: knows the record before the node":       {savesThenReads: true, narrow: markersRemoved},
	"processor: sees a part of a list":                  {seesParts: true},
	"processor: removes before the effect":              {removesFirst: true},
	"processor: removes whatever has the name":          {removesByName: true, narrow: tombstones},
	"processor: takes the newest first":                 {newestFirst: true},
	"processor: patches unconditionally":                {patchesBlindly: true},
	"processor: patches over another restore":           {patchesOverMarkers: true},
	"processor: patches whatever the taints are":        {patchesUnderTaints: true, script: closesAgainWhileItOpens},
	"processor: saves unconditionally":                  {savesBlindly: true},
	"processor: does not note a restore":                {notesNothing: true},
	"protection: lets go before the labels are stored":  {letsGoFirst: true, narrow: protectedOnly},
	"protection: ignores what its own watch shows":      {ignoresLateEdits: true, narrow: protectedOnly},
	"protection: trusts a record in the cache":          {trustsRecords: true, narrow: removedThenUnprotected, script: letsGoAfterARemoval},
	"protection: overtakes the queue":                   {overtakesQueue: true, narrow: unprotectedEnds},
	"protection: takes any marker for a restore":        {trustsMarkers: true, narrow: admissionsOfUnprotected, script: admittedTooEarly},
	"protection: ignores what waits of the node itself": {ignoresOwn: true, narrow: unnotedEnds, script: endsBeforeTheNote},
	"protection: merges what is on record already":      {mergesAll: true},
	"protection: lets go unconditionally":               {letsGoBlindly: true, narrow: protectedOnly},
	"protection: lets go what it has in its cache":      {letsGoCached: true, letsGoBlindly: true, narrow: protectedOnly},

	"watcher: trusts labels that are the same after a gap": {trustsLabels: true, narrow: standingStill},
	"barrier: none":                                       {noBarrier: true},
	"barrier: for conclusions only":                       {holdsConclusions: true},
	"barrier: replaced by a later list":                   {replacesBarrier: true},
	"barrier: asks those that were there before the list": {knowsMembersFirst: true, narrow: takingTurns, script: joinsDuringAList},
	"barrier: lists again after a silence":                {listsAgain: true, narrow: loneSilences},
	"barrier: goes on after a silence unknown to others":  {staysAway: true, narrow: silences},
	"barrier: trusts those that know the same nodes":      {trustsDigests: true},
	"barrier: passed before what was seen is stored":      {answersEarly: true},
	"barrier: does not ask who protects":                  {forgetsProtectors: true, narrow: lateEdits},
	"barrier: stores what an answer does not include":     {ignoresHeld: true, narrow: takenNames},
	"quarantine: keeps the name of what is malformed":     {keepsNames: true, narrow: takenNames},
	"quarantine: deletes before there is a copy":          {deletesFirst: true, narrow: takenNames},

	"watcher: lists the records before the nodes":      {recordsFirst: true, narrow: backAndForth},
	"watcher: takes every taken name for stored":       {trustsNames: true},
	"watcher: ignores what is not applied":             {ignoresQueue: true, narrow: backAndForth},
	"watcher: forgets what it leaves to the other one": {leavesForGood: true},
	"watcher: leaves out what the record is behind":    knowing(func(t txn.Transaction, r record.Record) bool { return !isStranger(t, r) }),
	// Comparing only resourceVersions would be sufficient here, as the labels of incarnations before
	// the record's are obsolete. But labels that users set are later than a Node that waits for them;
	// the tests of the watcher cover that.
	"watcher: leaves out what a record of another incarnation shows": knowing(isStranger),
	"watcher: leaves out what has the labels of the record":          knowing(hasSameLabels),
	"watcher: leaves out what follows a restore that is not noted":   knowing(preserve.RestoredUnnoted),
	"watcher: leaves out what has the name of a transaction": knowingQueue(func(t, queued txn.Transaction) bool {
		return queued.Revision == t.Revision
	}),
	"watcher: leaves out what is before a transaction": knowingQueue(func(t, queued txn.Transaction) bool {
		return isAfter(queued.Revision.String(), t.Revision.String())
	}),
	"watcher: no tombstone after a gap": observing(func(_, after *nodeview.Node, isRelist bool, transactions []txn.Transaction) []txn.Transaction {
		if isRelist && after == nil {
			return nil
		}
		return transactions
	}),
	"watcher: no delete on a changed uid": observing(func(before, after *nodeview.Node, _ bool, transactions []txn.Transaction) []txn.Transaction {
		if before != nil && after != nil && before.UID != after.UID {
			return transactions[1:]
		}
		return transactions
	}),
	"watcher: no add on a changed uid": observing(func(before, after *nodeview.Node, _ bool, transactions []txn.Transaction) []txn.Transaction {
		if before != nil && after != nil && before.UID != after.UID {
			return transactions[:1]
		}
		return transactions
	}),
	"watcher: a changed uid is an update": observing(func(before, after *nodeview.Node, _ bool, transactions []txn.Transaction) []txn.Transaction {
		if before != nil && after != nil && before.UID != after.UID {
			transactions[1].Type = txn.Updated
			return transactions[1:]
		}
		return transactions
	}),
	"watcher: no update after a gap": observing(func(_, _ *nodeview.Node, isRelist bool, transactions []txn.Transaction) []txn.Transaction {
		if isRelist && len(transactions) == 1 && transactions[0].Type == txn.Updated {
			return nil
		}
		return transactions
	}),
	"watcher: no updates": observing(func(_, _ *nodeview.Node, _ bool, transactions []txn.Transaction) []txn.Transaction {
		if len(transactions) == 1 && transactions[0].Type == txn.Updated {
			return nil
		}
		return transactions
	}),
	"watcher: no deletes": observing(func(_, after *nodeview.Node, _ bool, transactions []txn.Transaction) []txn.Transaction {
		if after == nil {
			return nil
		}
		return transactions
	}),
	"watcher: an update has the labels of before": observing(func(before, _ *nodeview.Node, _ bool, transactions []txn.Transaction) []txn.Transaction {
		if len(transactions) == 1 && transactions[0].Type == txn.Updated {
			transactions[0].Labels = maps.Clone(before.Labels)
		}
		return transactions
	}),
	"watcher: records everything that is there at the start": {catchUp: func(a *watcherActor, listed *nodeview.Node, _ *record.Record, _ []txn.Transaction) []txn.Transaction {
		return a.observer.CatchUp(listed, nil, false, listed.Created)
	}},
	"watcher: records nothing at the start": {catchUp: func(*watcherActor, *nodeview.Node, *record.Record, []txn.Transaction) []txn.Transaction {
		return nil
	}},
	"watcher: no update at the start": {catchUp: func(_ *watcherActor, _ *nodeview.Node, _ *record.Record, transactions []txn.Transaction) []txn.Transaction {
		if len(transactions) == 1 && transactions[0].Type == txn.Updated {
			return nil
		}
		return transactions
	}},
	"watcher: an add of what has its labels at the start": {catchUp: func(_ *watcherActor, _ *nodeview.Node, _ *record.Record, transactions []txn.Transaction) []txn.Transaction {
		for i := range transactions {
			transactions[i].Type = txn.Added
		}
		return transactions
	}},
}, agentMutants, editMutants, trustMutants, preservedMutants, admissionMutants, historyMutants, refusedMutants, applierMutants)

// with merges mutants into all.
func with(all map[string]mutant, more ...map[string]mutant) map[string]mutant {
	for _, some := range more {
		maps.Copy(all, some)
	}
	return all
}
