package inspect

import (
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// Forecast returns what the pending transactions will do, and then those in more, if nothing else
// happens: the decisions of [preserve.Plan]. It returns nothing if the record cannot be read: they
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
	var first *preserve.Decision // of a transaction that is decided about more than once: what it does
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
