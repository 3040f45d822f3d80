package processor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// errDoubtful says that the transactions that were to be applied together came to be in doubt. They are applied one by one then.
var errDoubtful = errors.New("some of the transactions are not in the queue any more")

// together returns the first of the pending transactions that are not done, and those after it that have their effect together
// with it: at most as many as are applied in one turn.
func (p *Processor) together(pending []txn.Queued, done map[types.UID]bool) []txn.Queued {
	pending = slices.DeleteFunc(pending, func(t txn.Queued) bool { return done[t.ObjectUID] })
	if len(pending) == 0 {
		return nil
	}
	most := turn - len(done)
	if p.history.InDoubt() {
		most = 1 // the last may be one that never happened, and the others may not
	}
	count := 1
	for count < min(len(pending), most) && preserve.Folds(pending[count-1].Transaction, pending[count].Transaction) {
		count++
	}
	return pending[:count]
}

// applyTogether makes the effect of transactions stored by that of the last one. A nil error means that all of them can be removed.
func (p *Processor) applyTogether(ctx context.Context, all []txn.Queued) error {
	last := all[len(all)-1]
	err := p.apply(ctx, last.Transaction, func(ctx context.Context) (bool, error) {
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
