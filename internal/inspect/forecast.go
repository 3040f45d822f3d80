package inspect

import (
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// Forecast says what transactions of one node will do, in this order, if nothing else happens: what [preserve.Decide] says of the
// first, then of the second when the first has taken effect, and so on. now is the resourceVersion of all Nodes after all of
// these transactions: what a restore leaves is later than every one of them.
func Forecast(transactions []txn.Transaction, r *record.Record, n *preserve.Node, now string, policy labels.Policy) []preserve.Decision {
	decisions := make([]preserve.Decision, 0, len(transactions))
	for _, t := range transactions {
		d := preserve.Decide(t, r, n, policy)
		switch d.Action {
		case preserve.Nothing:
		case preserve.Save:
			r = new(d.Record)
		case preserve.Restore:
			n = &preserve.Node{UID: n.UID, ResourceVersion: now, Labels: d.Labels, Marker: d.Marker}
			r = new(preserve.Noted(*r, *n))
		}
		decisions = append(decisions, d)
	}
	return decisions
}
