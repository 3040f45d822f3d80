package processor

import (
	"context"
	"errors"

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
			// The Node before its record, see read: this group may store that. If it cannot be read, the save needs not wait for it.
			node, err := p.liveNode(ctx, group[0].Node)
			k = known{node: node, isNodeRead: err == nil}
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
