package processor

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/processor/job"
	"nodekeeper.dev/internal/processor/schedule"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// hasWaitingLabels reports whether a record has labels that wait until a Node reports its machine.
func hasWaitingLabels(cm *corev1.ConfigMap) bool {
	if cm.Annotations[record.WithheldAnnotation] == "" {
		return false // most records have none, and need not be parsed
	}
	r, err := record.Parse(cm)
	if err != nil {
		return false
	}
	_, isWaiting := preserve.Recheck(*r)
	return isWaiting
}

// recheck checks whether a Node without transactions has reported its machine, if labels wait for
// that. The first check does not take the node's lock; its result is used only to decide when to
// check again.
func (p *Processor) recheck(ctx context.Context, node string) (reconcile.Result, error) {
	stored, err := p.Records.Cached(ctx, node)
	if err != nil || stored.Record == nil {
		return reconcile.Result{}, err
	}
	t, isWaiting := preserve.Recheck(*stored.Record)
	if !isWaiting {
		return reconcile.Result{}, nil
	}
	n, err := p.Applier.Nodes.Get(ctx, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	if n != nil && preserve.Decide(t, stored.Record, n, p.Applier.Policy).Action == preserve.Nothing {
		return reconcile.Result{
			RequeueAfter: schedule.Recheck(n.Age, p.Ring.Place(node)),
			Priority:     new(schedule.NormalPriority),
		}, nil
	}
	return job.UnderLock(ctx, p.Locks, node, func(ctx context.Context) error {
		_, err := p.Applier.Apply(ctx, []txn.Transaction{t}, func(context.Context, []txn.Transaction) error { return nil })
		if err != nil {
			p.Observer.Failed(err)
		}
		return err
	})
}
