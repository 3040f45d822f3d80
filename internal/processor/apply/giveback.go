package apply

import (
	"context"
	"errors"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview/owners"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// saveStep stores the record of a step. If that notes a restore onto the known Node, which the
// webhook or an interrupted attempt has done, the labels are given back first.
func (a *Applier) saveStep(ctx context.Context, r *run, step preserve.Step) error {
	if r.node != nil && (step.Record.Restored.UID == r.node.UID || step.Record.Source == r.node.UID) {
		if err := a.giveBack(ctx, r.queue[r.settled], &r.known, step.Record.Owners); err != nil {
			return err
		}
	}
	return a.save(ctx, step.Record, &r.known)
}

// giveBack gives the labels that restores have set on the known Node back to their owners. It must
// not keep a restore from being noted: if it is refused, or the Node keeps changing, the labels stay
// nodekeeper's. The known Node stays as it is except for its revision and its owners.
func (a *Applier) giveBack(ctx context.Context, t txn.Transaction, k *known, to owners.Owners) error {
	node, err := a.Nodes.GiveBack(ctx, k.node, to)
	switch {
	case errors.Is(err, nodes.ErrStale):
		a.Observer.Conflicted(err)
		return nil
	case nodes.Refused(err), errors.Is(err, owners.ErrUnreadable):
		a.Observer.NotGivenBack(ctx, t, err)
		return nil
	case err != nil:
		return err
	}
	k.node = node
	return nil
}
