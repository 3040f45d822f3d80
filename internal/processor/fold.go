package processor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// errDoubtful says that the transactions that were to be applied together came to be in doubt. They are applied one by one then.
var errDoubtful = errors.New("some of the transactions are not in the queue any more")

// groups returns transactions, oldest first, those together that have their effect together.
func (p *Processor) groups(pending []txn.Queued) [][]txn.Queued {
	isInDoubt := p.history.InDoubt() // then the last may be one that never happened, and the others may not
	var groups [][]txn.Queued
	for i, t := range pending {
		if i > 0 && !isInDoubt && preserve.Folds(pending[i-1].Transaction, t.Transaction) {
			groups[len(groups)-1] = append(groups[len(groups)-1], t)
		} else {
			groups = append(groups, []txn.Queued{t})
		}
	}
	return groups
}

// applyGroups makes the effect of transactions stored, of each group by its last one. It stops at the first that cannot be applied, and
// returns those before it: they can be removed.
func (p *Processor) applyGroups(ctx context.Context, groups [][]txn.Queued) (applied []txn.Queued, err error) {
	var k known
	for i, group := range groups {
		if i+1 < len(groups) && groups[i+1][0].Type == txn.Added && !p.history.InDoubt() {
			// The Node before its record, see read: this group may store that.
			node, err := p.liveNode(ctx, group[0].Node)
			if err != nil {
				return applied, err
			}
			k = known{node: node, isNodeRead: true}
		}
		if err := p.applyTogether(ctx, group, &k); err != nil {
			return applied, err
		}
		applied = append(applied, group...)
		p.loops[nodeController].Progress(group[0].Node)
	}
	return applied, nil
}

// applyTogether makes the effect of transactions stored by that of the last one. A nil error means that all of them can be removed.
func (p *Processor) applyTogether(ctx context.Context, all []txn.Queued, k *known) error {
	last := all[len(all)-1]
	err := p.apply(ctx, last.Transaction, k, func(ctx context.Context) (bool, error) {
		isQueued, err := p.isQueued(ctx, last)
		if err == nil && !isQueued && len(all) > 1 {
			err = errDoubtful
		}
		return isQueued, err
	})
	if err != nil {
		return err
	}
	for _, t := range all[:len(all)-1] {
		p.metrics.countApplied(t.Transaction, preserve.Nothing)
	}
	return nil
}

// patience lets saves wait, so that what happens to a node within a short time is saved at once, and with one lock. It is safe for
// concurrent use.
type patience struct {
	delay time.Duration
	mu    sync.Mutex
	since map[string]time.Time // by node: when the first of its transactions was seen
}

func newPatience(delay time.Duration) *patience {
	return &patience{delay: delay, since: map[string]time.Time{}}
}

// wait returns how much longer the transactions of a node are to wait. Those that bring labels back wait for nothing.
func (w *patience) wait(node string, pending []txn.Queued, now time.Time) time.Duration {
	if w.delay == 0 || slices.ContainsFunc(pending, func(t txn.Queued) bool { return t.Type == txn.Added }) {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, isWaiting := w.since[node]; !isWaiting {
		w.since[node] = now
	}
	return max(0, w.since[node].Add(w.delay).Sub(now))
}

// forget says that nothing of the node is waiting any more.
func (w *patience) forget(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, node)
}
