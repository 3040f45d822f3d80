package processor

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/schedule"
	"nodekeeper.dev/internal/txn"
)

// waits reports whether a transaction has had all of its effect but for restricted labels, which wait
// until the Node says which machine it is.
func waits(t txn.Transaction, r *record.Record) bool {
	return r != nil && t.Type == txn.Added && r.WaitsFor(t.UID)
}

// divide returns the transactions of a node that have an effect, and those that wait, as far as the
// cache shows that.
func (p *Processor) divide(ctx context.Context, node string, pending []queue.Queued) (active, waiting []queue.Queued) {
	stored, err := p.Records.Cached(ctx, node)
	if err != nil || stored.Record == nil {
		return pending, nil
	}
	for _, t := range pending {
		if waits(t.Transaction, stored.Record) {
			waiting = append(waiting, t)
		} else {
			active = append(active, t)
		}
	}
	return active, waiting
}

// stillWaits looks without the node's lock whether its Node says by now which machine it is. Nothing
// is concluded from it but when to look again.
func (p *Processor) stillWaits(ctx context.Context, node string, waiting []queue.Queued) (bool, error) {
	stored, err := p.Records.Cached(ctx, node)
	if err != nil || stored.Record == nil {
		return false, err
	}
	n, err := p.Applier.Nodes.GetIdentified(ctx, node)
	if err != nil || n == nil {
		return false, err
	}
	for _, t := range waiting {
		d := preserve.Decide(t.Transaction, stored.Record, preserve.NodeOf(n), p.Applier.Policy)
		if d.Action != preserve.Wait {
			return false, nil
		}
	}
	return true, nil
}

// lookAgain returns when to look at a node of which nothing but waiting transactions is left.
func (p *Processor) lookAgain(node string, waiting []queue.Queued) reconcile.Result {
	p.Locks.Forget(node)
	p.schedule.Forget(node)
	place := p.Ring.Place(node)
	return reconcile.Result{
		RequeueAfter: schedule.LookAgain(time.Since(waiting[0].Created), place),
		Priority:     new(schedule.NormalPriority),
	}
}
