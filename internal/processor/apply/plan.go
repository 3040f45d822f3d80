package apply

import (
	"context"
	"time"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// plan reads what is still missing and returns a plan that can be executed. It reads the Node
// before the record, or before the save that proves the cached record to be current. A restore by
// another process is therefore either visible in the record or makes the write to the Node fail.
func (a *Applier) plan(ctx context.Context, queue []txn.Transaction, v *view, fromCache bool) ([]preserve.Step, error) {
	if v.current && v.readAt.IsZero() && preserve.NeedsNode(queue, v.stored.Record, a.Policy.MachineBound) {
		*v = view{} // so far the Node was not needed
	}
	if fromCache {
		steps, err := a.planFromCache(ctx, queue, v)
		if err != nil || len(steps) > 0 {
			return steps, err
		}
	}
	if !v.current {
		if err := a.readLive(ctx, queue[0].Node, v); err != nil {
			return nil, err
		}
	}
	return a.planned(ctx, queue, v)
}

// planFromCache returns a plan that begins with a save, whose precondition proves the cached record
// to be current. It returns no other plan: the write of a restore is conditional on the Node only,
// and no transaction may be dropped because of a cached read.
func (a *Applier) planFromCache(ctx context.Context, queue []txn.Transaction, v *view) ([]preserve.Step, error) {
	stored, err := a.Records.Cached(ctx, queue[0].Node)
	if err != nil || stored.Unreadable != nil {
		return nil, nil //nolint:nilerr // a live read follows, which returns the error if it persists
	}
	if preserve.NeedsNode(queue, stored.Record, a.Policy.MachineBound) {
		if err := a.readNode(ctx, queue[0].Node, v); err != nil {
			return nil, err
		}
	}
	v.stored = stored
	steps, err := a.planned(ctx, queue, v)
	if err != nil || steps[0].Action != preserve.Save {
		return nil, err
	}
	return steps, nil
}

// readLive reads the Node, unless that was done just before, and then its record.
func (a *Applier) readLive(ctx context.Context, node string, v *view) (err error) {
	if v.readAt.IsZero() {
		if err := a.readNode(ctx, node, v); err != nil {
			return err
		}
	}
	if v.stored, err = a.Records.Get(ctx, node); err != nil {
		return err
	}
	if v.stored.Unreadable != nil {
		return &UnreadableError{Object: v.stored.Object, Err: v.stored.Unreadable}
	}
	v.current = true
	return nil
}

func (a *Applier) readNode(ctx context.Context, node string, v *view) error {
	began := time.Now()
	n, err := a.Nodes.Get(ctx, node)
	if err == nil {
		v.node, v.readAt = n, began
	}
	return err
}

func (a *Applier) planned(ctx context.Context, queue []txn.Transaction, v *view) ([]preserve.Step, error) {
	now, err := a.present(ctx, queue, v)
	if err != nil {
		return nil, err
	}
	if a.Plan != nil {
		return a.Plan(now, queue, v.stored.Record, v.node), nil
	}
	return preserve.PlanAt(now, queue, v.stored.Record, v.node, a.Policy), nil
}
