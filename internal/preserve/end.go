package preserve

import (
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// NotesEnding reports whether a record, nil if none exists, follows the incarnation that ends. If
// it does not, [Ending] needs all pending transactions of the node.
func NotesEnding(end txn.Transaction, r *record.Record) bool {
	return r != nil && !r.Floor && isSourceOrRestored(*r, end.UID)
}

// Ending returns the transactions that save the end of an incarnation which a processor read
// itself, given the record and the node's pending transactions, oldest first. Those of an earlier
// history come before the others.
//
// Unless the incarnation is known to have its labels, the transactions of earlier incarnations are
// applied first; if there is no record, the first of them creates it. The incarnation's own
// transactions are never applied before its end, because a restore may be rejected and must not
// delay it. The end supersedes them instead, and [Decide] merges those that are later than the
// record into it: only they record which labels agents have set and withdrawn since the state that
// the record notes, and therefore which ones a user has removed.
func Ending(end txn.Transaction, r *record.Record, waiting []txn.Transaction) []txn.Transaction {
	var first, own []txn.Transaction
	for _, t := range waiting {
		switch {
		case t.UID != end.UID && (t.Ahead || end.Revision.After(t.Revision)):
			first = append(first, t)
		case t.UID == end.UID && (t.Ahead || !t.Revision.After(end.Revision)):
			own = append(own, t)
		}
	}
	if NotesEnding(end, r) || r != nil && Owned(*r, end.UID, end.Marker) && restoredSince(own, end.Marker) {
		first = nil
	}
	end.Superseded = own
	return append(first, end)
}

// merged returns an end with those of the transactions that it supersedes which the record, nil if
// none exists, does not include. After a write conflict the record is another one.
func merged(t txn.Transaction, r *record.Record) txn.Transaction {
	if t.Superseded == nil {
		return t
	}
	own := slices.DeleteFunc(slices.Clone(t.Superseded), func(earlier txn.Transaction) bool { return !addsTo(r, earlier, t) })
	t.Superseded = nil
	if len(own) == 0 {
		return t
	}
	own = append(own, t)
	t = own[0]
	for _, next := range own[1:] {
		t = Merged(t, next)
	}
	t.States = own
	return t
}

// statesOf returns the states of an incarnation that a transaction stands for, oldest first. The
// last one is the transaction's own.
func statesOf(t txn.Transaction) []txn.Transaction {
	if len(t.States) == 0 {
		return []txn.Transaction{t}
	}
	return t.States
}

// withOverruled returns a transaction in which users have overruled further keys.
func withOverruled(t txn.Transaction, keys labels.Keys) txn.Transaction {
	t.Overruled = t.Overruled.Union(keys)
	if len(t.States) > 0 {
		t.States = slices.Clone(t.States)
		last := &t.States[len(t.States)-1]
		last.Overruled = last.Overruled.Union(keys)
	}
	return t
}

// addsTo reports whether a transaction of the incarnation that ends is later than the state of it
// that the record, nil if none exists, includes. A record of this history, whose revision is not
// after the end, includes every transaction of an earlier history.
func addsTo(r *record.Record, t, end txn.Transaction) bool {
	if r == nil || r.Floor || !isSourceOrRestored(*r, t.UID) {
		return true
	}
	seen := r.Revision
	if t.UID == r.Restored.UID {
		seen = r.Restored.Revision
	}
	return (!t.Ahead || seen.After(end.Revision)) && !covers(*r, t)
}

// restoredSince reports whether an incarnation has its marker from a processor whose restore is not
// noted yet. The Added transaction of a restore stays in the queue until the note is stored. If no
// pending transaction predates the marker, the Node was created with it: either the webhook used a
// record that may lack pending transactions of earlier incarnations, or the request contained the
// marker.
func restoredSince(own []txn.Transaction, marker string) bool {
	return slices.ContainsFunc(own, func(t txn.Transaction) bool { return t.Type == txn.Added && t.Marker != marker })
}
