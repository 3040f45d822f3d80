package inspect

import (
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// Forecast returns the decisions of [preserve.Plan] for the pending transactions, followed by more,
// if nothing else happens. It returns none if the record cannot be parsed, as transactions then
// wait.
func (n *Node) Forecast(policy labels.Policy, more ...txn.Transaction) []preserve.Decision {
	if n.Saved.Unreadable != nil {
		return nil
	}
	transactions := make([]txn.Transaction, 0, len(n.Pending)+len(more))
	for _, p := range n.Pending {
		transactions = append(transactions, p.Transaction)
	}
	transactions = append(transactions, more...)
	var live *preserve.Node
	if n.Live != nil {
		live = preserve.NodeOf(n.Live)
	}
	decisions := make([]preserve.Decision, 0, len(transactions))
	var first *preserve.Decision // the effective decision of a transaction that has several
	for _, step := range preserve.Plan(transactions, n.Saved.decisive(), live, policy) {
		for _, d := range step.Decisions {
			if first == nil || d.Action == preserve.Restore {
				first = &d
			}
			if d.Again {
				continue
			}
			if first.Action == preserve.Restore {
				d = *first
			}
			decisions, first = append(decisions, d), nil
		}
	}
	return decisions
}
