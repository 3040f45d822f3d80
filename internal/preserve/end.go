package preserve

import (
	"slices"

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
	var first, own []txn.Transaction
	for _, t := range waiting {
		switch {
		case !end.Revision.After(t.Revision):
		case t.UID != end.UID:
			first = append(first, t)
		default:
			own = append(own, t)
		}
	}
	if r != nil && Owned(*r, end.UID, end.Marker) && restoredSince(own, end.Marker) {
		first = nil
	}
	own = append(own, end)
	end = own[0]
	for _, t := range own[1:] {
		end = Merged(end, t)
	}
	return append(first, end)
}

// restoredSince reports whether a processor has put labels back onto an incarnation whose restore is
// not noted, by which it has a marker. What waits of the incarnation shows that: the Added
// transaction of a restore stays in the queue until the note is stored. If none is of a time before
// the marker, the Node came with it: the webhook answered from a record that may lack what waits of
// earlier incarnations, or the marker was in the request.
func restoredSince(own []txn.Transaction, marker string) bool {
	return slices.ContainsFunc(own, func(t txn.Transaction) bool { return t.Type == txn.Added && t.Marker != marker })
}
