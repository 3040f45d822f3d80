package processor

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/processor/job"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/txn"
)

// maxBatch bounds the transactions of one node that are applied per turn, so that a busy node
// cannot monopolize a worker.
const maxBatch = 20

// maxStates bounds the transactions of a node from which the edits before a restore are known, so that
// the work for a long queue is linear in its length.
const maxStates = 5 * maxBatch

// errNotQueued means that a cached transaction is no longer in the queue.
var errNotQueued = errors.New("a transaction is no longer in the queue")

// drain applies the transactions of a node until none is left or its turn is over. It stops at the
// first transaction that cannot be applied. It returns how many it has applied, or found to have
// no effect any more.
func (p *Processor) drain(ctx context.Context, node string) (applied int, err error) {
	done := map[types.UID]bool{} // removed from the queue; the cache may be behind
	for {
		pending, err := p.earlier.first(ctx, p, p.Index.Pending(node))
		if err != nil {
			return applied, err
		}
		left := next(pending, done)
		switch {
		case len(left) == 0:
			return applied, nil
		case len(done) >= maxBatch:
			return applied, job.ErrTurnOver
		}
		transactions := make([]txn.Transaction, len(left))
		for i := range left {
			transactions[i] = left[i].Transaction
		}
		batch := left[:min(len(left), maxBatch-len(done))]
		transactions = preserve.WithQueuedEdits(transactions)[:len(batch)]
		settled, err := p.Applier.Apply(ctx, transactions, func(ctx context.Context, used []txn.Transaction) error {
			return p.confirm(ctx, left, used, done)
		})
		// Remove last: a crash before this repeats the steps, which then have no effect.
		applied += settled
		for _, t := range batch[:settled] {
			if err := p.Queue.Remove(ctx, t); err != nil {
				return applied, err
			}
			p.Index.Drop(t)
			done[t.ObjectUID] = true
		}
		if err != nil && !errors.Is(err, errNotQueued) {
			p.Observer.Failed(err)
			return applied, err
		}
	}
}

// next returns the pending transactions that are not done, at most maxStates of them.
func next(pending []queue.Queued, done map[types.UID]bool) []queue.Queued {
	left := make([]queue.Queued, 0, min(len(pending), maxStates))
	for _, t := range pending {
		if len(left) == maxStates {
			break
		}
		if !done[t.ObjectUID] {
			left = append(left, t)
		}
	}
	return left
}

// confirm is the check before a plan is executed. It reads each transaction that the plan uses and
// that an etcd restore may have undone, and the other states of an incarnation whose edits it uses,
// which show these. If one of them is not in the queue, confirm drops it and returns errNotQueued, so
// that the others are planned again.
func (p *Processor) confirm(ctx context.Context, left []queue.Queued, used []txn.Transaction, done map[types.UID]bool) error {
	gone := false
	for _, t := range left {
		isUsed := slices.ContainsFunc(used, func(u txn.Transaction) bool {
			return txn.Compare(u, t.Transaction) == 0 || u.UID == t.UID && u.RestsOnQueue()
		})
		if !isUsed || !p.Rewind.Unconfirmed(t.Seen) {
			continue
		}
		queued, err := p.Queue.Holds(ctx, t)
		if err != nil {
			return err
		}
		if !queued {
			logf.FromContext(ctx).Info("Skipped a transaction that is no longer in the queue",
				"type", t.Type, "resourceVersion", t.Revision, "uid", t.UID)
			p.Index.Drop(t)
			done[t.ObjectUID], gone = true, true
		}
	}
	if gone {
		return errNotQueued
	}
	return nil
}

// applied reports whether all of a node's transactions have had their effect according to the
// cache, so that waiting for more would coalesce no further saves.
func (p *Processor) applied(ctx context.Context, node string, pending []queue.Queued) bool {
	stored, err := p.Records.Cached(ctx, node)
	return err == nil && stored.Record != nil &&
		!slices.ContainsFunc(pending, func(t queue.Queued) bool {
			return !preserve.Applied(t.Transaction, *stored.Record, p.Applier.Policy.MachineBound)
		})
}
