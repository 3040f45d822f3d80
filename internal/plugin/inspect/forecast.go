package inspect

import (
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// Forecast returns the decisions of [preserve.PlanAt] for the pending transactions, followed by
// more, if nothing else happens. It returns none if the record cannot be parsed, as transactions
// then wait.
func (n *Node) Forecast(policy labels.Policy, more ...txn.Transaction) []preserve.Decision {
	if n.Saved.Unreadable != nil {
		return nil
	}
	transactions := make([]txn.Transaction, 0, len(n.Pending)+len(more))
	for _, p := range n.Pending {
		transactions = append(transactions, p.Transaction)
	}
	transactions = preserve.WithQueuedEdits(append(transactions, more...))
	decisions := make([]preserve.Decision, 0, len(transactions))
	var effective *preserve.Decision // of a transaction that has several decisions
	for _, step := range preserve.PlanAt(n.checked, transactions, n.Saved.decisive(), n.Live, policy) {
		for _, d := range step.Decisions {
			if effective == nil || d.Action != preserve.Nothing && effective.Action != preserve.Restore {
				effective = &d
			}
			if !d.Again {
				decisions, effective = append(decisions, *effective), nil
			}
		}
	}
	return decisions
}
