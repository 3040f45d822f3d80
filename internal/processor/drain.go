package processor

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/processor/job"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/txn"
)

// maxBatch bounds the transactions of one node that are applied per turn, so that a busy node
// cannot monopolize a worker.
const maxBatch = 20

// errNotQueued means that a transaction is in the cache and not in the queue.
var errNotQueued = errors.New("a transaction is not in the queue any more")

// drain applies the transactions of a node until there are none or its turn is over. It stops at
// the first that cannot be applied.
func (p *Processor) drain(ctx context.Context, node string) error {
	done := map[types.UID]bool{} // removed from the queue; the cache may be behind
	for {
		batch := next(p.Index.Pending(node), done)
		switch {
		case len(batch) == 0:
			return nil
		case len(done) >= maxBatch:
			return job.ErrTurnOver
		}
		batch = batch[:min(len(batch), maxBatch-len(done))]
		transactions := make([]txn.Transaction, len(batch))
		for i := range batch {
			transactions[i] = batch[i].Transaction
		}
		settled, err := p.Applier.Apply(ctx, transactions, func(ctx context.Context, saved []txn.Transaction) error {
			return p.confirm(ctx, batch, saved, done)
		})
		// Remove last: a crash before this repeats the steps, which then have no effect.
		for _, t := range batch[:settled] {
			if err := p.Queue.Remove(ctx, t); err != nil {
				return err
			}
			p.Index.Drop(t)
			done[t.ObjectUID] = true
		}
		if err != nil && !errors.Is(err, errNotQueued) {
			p.Observer.Failed(err)
			return err
		}
	}
}

// next returns transactions that are not done, at most those of one turn.
func next(pending []queue.Queued, done map[types.UID]bool) []queue.Queued {
	batch := make([]queue.Queued, 0, min(len(pending), maxBatch))
	for _, t := range pending {
		if len(batch) == maxBatch {
			break
		}
		if !done[t.ObjectUID] {
			batch = append(batch, t)
		}
	}
	return batch
}

// confirm is the check on a plan: it reads the transactions of a batch that are saved and may be of
// a lost future. One that is not in the queue is left out, and errNotQueued makes the others be
// planned again.
func (p *Processor) confirm(ctx context.Context, batch []queue.Queued, saved []txn.Transaction, done map[types.UID]bool) error {
	gone := false
	for _, t := range batch {
		isSaved := slices.ContainsFunc(saved, func(s txn.Transaction) bool { return txn.Compare(s, t.Transaction) == 0 })
		if !isSaved || !p.Rewind.Unconfirmed(t.Seen) {
			continue
		}
		queued, err := p.Queue.Holds(ctx, t)
		if err != nil {
			return err
		}
		if !queued {
			logf.FromContext(ctx).Info("Skipped a transaction that is not in the queue any more",
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

// applied reports whether the cache shows that all of a node's transactions have had their effect:
// then nothing is left to coalesce.
func (p *Processor) applied(ctx context.Context, node string, pending []queue.Queued) bool {
	stored, err := p.Records.Cached(ctx, node)
	return err == nil && stored.Record != nil &&
		!slices.ContainsFunc(pending, func(t queue.Queued) bool { return !preserve.Applied(t.Transaction, *stored.Record) })
}
