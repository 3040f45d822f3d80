package processor

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/internal/processor/job"
	"nodekeeper.dev/internal/processor/schedule"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/record"
)

// enqueue enqueues the node of a transaction. It runs with the index locked.
func (p *Processor) enqueue(e *queue.Entry, work job.Requests) {
	if e.Transaction != nil {
		node := e.Transaction.Node
		job.Add(work, node, schedule.Priority(schedule.Urgent(*e.Transaction), p.Ring.Place(node)))
	}
}

// recordHandler enqueues the node of a record if the node has transactions, which may wait until
// the record is corrected, or if labels in the record wait for the Node.
func (p *Processor) recordHandler() handler.TypedEventHandler[*corev1.ConfigMap, reconcile.Request] {
	enqueue := func(cm *corev1.ConfigMap, work job.Requests) {
		if cm.Namespace == p.Records.Namespace && cm.Name != record.RootCAName && (len(p.Index.Pending(cm.Name)) > 0 || hasWaitingLabels(cm)) {
			job.Add(work, cm.Name, schedule.NormalPriority)
		}
	}
	return handler.TypedFuncs[*corev1.ConfigMap, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.ConfigMap], work job.Requests) {
			enqueue(e.Object, work)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.ConfigMap], work job.Requests) {
			enqueue(e.ObjectNew, work)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.ConfigMap], work job.Requests) {
			enqueue(e.Object, work)
		},
	}
}

// age gives nodes that have waited for longer than oldAge the highest priority, so that they do not
// starve.
func (p *Processor) age(ctx context.Context, work job.Requests) error {
	go wait.UntilWithContext(ctx, func(context.Context) {
		old := time.Now().Add(-oldAge)
		// If the clock of the API server is ahead, only the time at which this process first saw the
		// transactions shows their age.
		for _, node := range append(p.Index.OlderThan(old), p.schedule.SeenBefore(old)...) {
			raise(work, node)
		}
	}, agePeriod)
	return nil
}

// raise gives a node the highest priority. It does not make the node due any earlier, as every
// delay is shorter than oldAge: a node whose Node or record is refused keeps its backoff.
func raise(work job.Requests, node string) {
	if ordered, ok := work.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: new(schedule.OwnedPriority), After: oldAge}, job.Request(node))
	}
}

// followRing reschedules the waiting nodes whenever the ring changes, so that no node keeps waiting
// for a processor that is gone.
func (p *Processor) followRing(ctx context.Context, work job.Requests) error {
	changes := p.Ring.RingChanges()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changes:
			}
			for _, node := range p.schedule.SeenBefore(time.Now()) {
				summary := schedule.Of(p.Index.Pending(node))
				job.Add(work, node, schedule.Priority(summary.Urgent, p.Ring.Place(node)))
			}
		}
	}()
	return nil
}
