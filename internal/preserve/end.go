package preserve

import (
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// NotesEnding reports whether a record, nil if there is none, follows the incarnation that ends. If
// it does not, [Ending] needs all transactions of the node that wait.
func NotesEnding(end txn.Transaction, r *record.Record) bool {
	return r != nil && !r.Floor && isSourceOrRestored(*r, end.UID)
}

// Ending returns what is applied to save the end of an incarnation that a processor itself read,
// given the record and the transactions of its node that wait, oldest first.
//
// Unless the incarnation is known to have its labels, the transactions of earlier ones are applied
// first: if there is no record, the first of them makes it. Its own are never applied before its
// end: a restore, which may be refused, must not hold that up. But only they say what its agents
// have set and withdrawn since the state that the record notes, and so what a person has removed.
func Ending(end txn.Transaction, r *record.Record, waiting []txn.Transaction) []txn.Transaction {
	var first, own []txn.Transaction
	for _, t := range waiting {
		switch {
		case t.UID == end.UID && !t.Revision.After(end.Revision) && !isNotedIn(r, t):
			own = append(own, t)
		case t.UID != end.UID && end.Revision.After(t.Revision):
			first = append(first, t)
		}
	}
	if len(own) > 0 {
		end = Merged(mergedAll(own), end)
	}
	if r != nil && Owned(*r, end.UID, end.Marker) {
		first = nil
	}
	return append(first, end)
}

// isNotedIn reports whether a record, nil if there is none, shows the state of the incarnation that
// a transaction records, or a later one.
func isNotedIn(r *record.Record, t txn.Transaction) bool {
	switch {
	case r == nil || r.Floor:
		return false
	case t.UID == r.Restored.UID:
		return !t.Revision.After(r.Restored.Revision)
	}
	return t.UID == r.Source && !t.Revision.After(r.Revision)
}

// mergedAll returns the last of some transactions with what all of them say, see [Merged].
func mergedAll(all []txn.Transaction) txn.Transaction {
	merged := all[0]
	for _, t := range all[1:] {
		merged = Merged(merged, t)
	}
	return merged
}
