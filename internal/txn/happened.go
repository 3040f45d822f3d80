package txn

import (
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/revision"
)

// Happened reports whether the event that t records is consistent with the cluster's history, given
// the node of that name, nil if there is none, and the revision of all nodes after it. It is not if
// its revision lies in the future, or if the incarnation exists in an older state, or still exists
// after its delete.
func Happened(t Transaction, live *nodeview.Node, now revision.Revision) bool {
	if isBefore(now, t.Revision) {
		return false
	}
	return live == nil || live.UID != t.UID || t.Type != Deleted && !isBefore(live.Revision, t.Revision)
}

// isBefore reports whether a is before b. If a is zero, that is unknown, and the result is false.
func isBefore(a, b revision.Revision) bool { return !a.IsZero() && b.After(a) }
