package preserve

import (
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// NotesEnding reports whether a record, nil if there is none, follows the incarnation that ends. If
// it does not, [Ending] needs the transactions of the node that wait.
func NotesEnding(end txn.Transaction, r *record.Record) bool {
	return r != nil && !r.Floor && isSourceOrRestored(*r, end.UID)
}

// Ending returns what is applied to save the end of an incarnation that a processor itself read,
// given the record and the transactions of its node that wait, oldest first.
//
// Unless the incarnation is known to have its labels, the transactions of earlier ones are applied
// first: if there is no record, the first of them makes it. Its own are never applied before its
// end: a restore, which may be refused, must not hold that up. But where the record does not note
// the incarnation, only they say what its agents had set, and so what a person has removed since.
func Ending(end txn.Transaction, r *record.Record, waiting []txn.Transaction) []txn.Transaction {
	if NotesEnding(end, r) {
		return []txn.Transaction{end}
	}
	var first []txn.Transaction
	var own *txn.Transaction
	for _, t := range waiting {
		switch {
		case !end.Revision.After(t.Revision):
		case t.UID != end.UID:
			first = append(first, t)
		case own == nil:
			own = &t
		default:
			own = new(Merged(*own, t))
		}
	}
	if own != nil {
		end = Merged(*own, end)
	}
	if r != nil && Owned(*r, end.UID, end.Marker) {
		first = nil
	}
	return append(first, end)
}
