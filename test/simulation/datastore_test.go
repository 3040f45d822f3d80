package simulation

import (
	"slices"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// historyOffset is how far revisions go back when the datastore is replaced. In the simulation, the
// revisions of the API server go on, and everything that is stored gets revisions that are so much
// later: only differences count.
const historyOffset = 10_000

// replaceDatastore replaces the datastore, which ends all services. It does nothing while transactions
// of an earlier history are left: what became of those of two histories is not promised.
func (s *simulation) replaceDatastore() {
	if slices.ContainsFunc(s.world.queue, func(t *storedTxn) bool { return t.Revision.After(rev(s.world.rv)) }) {
		return
	}
	s.world.log("--- the datastore is replaced")
	for who := range s.everybody {
		if who != 0 && who != network {
			s.crash(who)
		}
	}
	s.world.replaceDatastore()
}

// replaceDatastore gives everything that is stored revisions of an earlier history. Markers are
// stored on the Node.
func (w *world) replaceDatastore() {
	w.late = nil
	if w.record != nil {
		w.setRecord(newStoredRecord(laterRecord(w.record.Record)))
	}
	queue := make([]*storedTxn, len(w.queue))
	for i, t := range w.queue {
		later := *t
		later.Revision, later.Marker = laterRevision(t.Revision), laterText(t.Marker)
		queue[i] = &later
	}
	slices.SortFunc(queue, func(a, b *storedTxn) int { return txn.Compare(a.Transaction, b.Transaction) })
	w.queue = queue
	if w.node != nil && w.node.Marker != "" {
		n := *w.node
		n.Marker = laterText(n.Marker)
		w.node = &n
	}
}

func laterRecord(r record.Record) record.Record {
	r.Revision, r.Restored.Revision = laterRevision(r.Revision), laterRevision(r.Restored.Revision)
	return r
}

func laterRevision(r revision.Revision) revision.Revision { return revision.Of(laterText(r.String())) }

func laterText(rv string) string {
	if n := number(rv); n >= 0 {
		return rvText(n + historyOffset)
	}
	return rv
}

// replacedDatastores narrows schedules to datastores that are replaced. Everything that a watcher
// had not stored is lost then.
func replacedDatastores(s *settings) {
	s.agents, s.template, s.removals = 0, 0, 0
	s.variant, s.recordUpdates = outage, true
	s.replaces = 3
	s.actions = append(s.actions[:0], deletes, edits, edits, heartbeats, removesLabel)
}

// replacedThenUnprotected narrows schedules to a datastore that is replaced between the end of an
// unprotected Node and that of a protected one.
func replacedThenUnprotected(s *settings) {
	unprotectedEnds(s)
	replacedDatastores(s)
	s.variant, s.lateEdit = protected, 0
}

// earlierFirst returns the transactions of a node with those of an earlier history first, and
// marked, as a processor does.
func (a *processorActor) earlierFirst(queue []*storedTxn, isEarlier func(*storedTxn) bool) []*storedTxn {
	if a.settings.replaces == 0 || a.mutant.ignoresEarlier {
		return queue
	}
	var before, since []*storedTxn
	for _, t := range queue {
		if !isEarlier(t) {
			since = append(since, t)
			continue
		}
		marked := *t
		marked.Ahead = true
		before = append(before, &marked)
	}
	return append(before, since...)
}

// isEarlier reports whether a transaction in the cache is of an earlier history.
func (a *processorActor) isEarlier(t *storedTxn) bool {
	return a.listed[t.uid] && t.Revision.After(rev(a.listedAt))
}

// due returns the record and the decision about a transaction. A renewal of the record alone is not
// due to the transaction.
func (w *world) due(t txn.Transaction, decide preserve.DecideFunc) (*record.Record, preserve.Decision) {
	r, n := w.record.get(), w.liveNode()
	decide = preserve.At(rev(w.rv), policy, decide)
	d := decide(t, r, n)
	if d.Renews {
		r = &d.Record
		d = decide(t, r, n)
	}
	return r, d
}

// list notes which transactions there are when a processor starts, and the revision then.
func (a *processorActor) list() {
	a.listed, a.listedAt = map[int]bool{}, a.world.rv
	for _, t := range a.world.queue {
		a.listed[t.uid] = true
	}
}

// historyMutants break the rules about earlier histories.
var historyMutants = map[string]mutant{
	"history: a record of an earlier one is later":             {knowsOneHistory: true, narrow: replacedDatastores},
	"history: what an earlier one left is later":               {ignoresEarlier: true, narrow: replacedDatastores},
	"protection: overtakes an earlier history":                 {ignoresEarlier: true, narrow: replacedThenUnprotected},
	"history: a watcher believes the record of an earlier one": {believesAhead: true, narrow: replacedDatastores},
}
