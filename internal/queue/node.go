package queue

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/txn"
)

// nodeQueue holds the transactions of one node. Appending in order and removing the first, the most
// frequent operations, take constant time. A list, which comes in any order, is sorted once.
type nodeQueue struct {
	// sorted is returned to callers, so its elements never change.
	sorted []Queued
	// late arrived out of order since sorted was built, and gone were dropped from elsewhere than
	// the front.
	late []Queued
	gone map[types.UID]bool
}

func (q *nodeQueue) put(t Queued) {
	if q.gone[t.ObjectUID] {
		q.settle()
	}
	if n := len(q.sorted); len(q.late) > 0 || n > 0 && txn.Compare(q.sorted[n-1].Transaction, t.Transaction) >= 0 {
		q.late = append(q.late, t)
		return
	}
	// Readers hold shorter slices, so appending in place does not affect them.
	q.sorted = append(q.sorted, t)
}

// drop drops a transaction. It costs nothing if the transaction is older than all of the queue, as
// when the watch delivers a removal by this process.
func (q *nodeQueue) drop(t Queued) {
	if len(q.late) == 0 {
		if len(q.sorted) == 0 || byRevision(t, q.sorted[0]) < 0 {
			return
		}
		if q.sorted[0].ObjectUID == t.ObjectUID {
			q.sorted = q.sorted[1:]
			return
		}
	}
	if q.gone == nil {
		q.gone = map[types.UID]bool{}
	}
	q.gone[t.ObjectUID] = true
}

// dropUID drops the transaction of a ConfigMap, if present.
func (q *nodeQueue) dropUID(uid types.UID) {
	q.settle()
	for _, t := range q.sorted {
		if t.ObjectUID == uid {
			q.drop(t)
			return
		}
	}
}

// settle merges late and gone into sorted.
func (q *nodeQueue) settle() {
	if len(q.late) == 0 && len(q.gone) == 0 {
		return
	}
	// Newest first, so that the newest of several with the same name is kept.
	slices.Reverse(q.late)
	all := slices.Concat(q.late, q.sorted)
	all = slices.DeleteFunc(all, func(t Queued) bool { return q.gone[t.ObjectUID] })
	slices.SortStableFunc(all, byRevision)
	q.sorted = slices.CompactFunc(all, func(a, b Queued) bool { return byRevision(a, b) == 0 })
	q.late, q.gone = nil, nil
}

func byRevision(a, b Queued) int { return txn.Compare(a.Transaction, b.Transaction) }
