package processor

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/processor/job"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/processor/schedule"
	"nodekeeper.dev/internal/processor/telemetry"
)

const (
	// agePeriod is the time between two looks for nodes that restores have kept waiting, and oldAge
	// is when a node is one of them.
	agePeriod = 10 * time.Second
	oldAge    = time.Minute
)

// Config is what a Processor is made from. All fields are required but Ring, SaveDelay and Rewind.
type Config struct {
	// Applier applies transactions.
	Applier *apply.Applier
	// Records are those of the Applier.
	Records *records.Records
	// Queue removes transactions, and Index holds those of all nodes.
	Queue *queue.Queue
	Index *queue.Index
	// Locks are the locks of the nodes.
	Locks *nodelock.Locker
	// Observer says what was done. It is that of the Applier.
	Observer *telemetry.Observer
	// Ring knows where this process stands for each node; nil: it is the owner of all.
	Ring Ring
	// SaveDelay is the batch period of saves, see [schedule.Due]. Zero means that they wait for
	// nothing.
	SaveDelay time.Duration
	// Rewind reports which of the cached transactions are unconfirmed; nil: none.
	Rewind *rewind.Detector
	// Workers is how many nodes are worked on at a time.
	Workers int
}

// Ring is that of the processors.
type Ring interface {
	// Place returns where this process stands for a node.
	Place(node string) ring.Place
	// RingChanges returns a channel that receives after Place may have changed.
	RingChanges() <-chan struct{}
}

// alone is the Ring of a process that is the owner of all nodes.
type alone struct{}

// Place returns that of the owner.
func (alone) Place(string) ring.Place { return ring.Place{} }

// RingChanges returns a channel that never receives.
func (alone) RingChanges() <-chan struct{} { return nil }

// Processor applies the transactions of every node.
type Processor struct {
	Config

	schedule schedule.Schedule
}

// New returns a Processor whose metrics are registered: its own, those of its locks and of its
// detector.
func New(cfg Config, metrics prometheus.Registerer) (*Processor, error) {
	if cfg.Ring == nil {
		cfg.Ring = alone{}
	}
	p := &Processor{Config: cfg, schedule: schedule.Schedule{Batch: cfg.SaveDelay}}
	all := []prometheus.Collector{cfg.Locks, newStock(p)}
	if cfg.Rewind != nil {
		all = append(all, cfg.Rewind)
	}
	if err := telemetry.Register(metrics, all...); err != nil {
		return nil, err
	}
	return p, nil
}

// Register makes the manager run the processor. Its cache must hold the ConfigMaps of the metadata
// namespace, and the Index must run.
func (p *Processor) Register(mgr manager.Manager) error {
	c, err := job.NewController(mgr, "node", p.Workers, p.reconcile)
	if err != nil {
		return err
	}
	if err := c.Watch(job.Transactions(p.Index, p.enqueue)); err != nil {
		return fmt.Errorf("watching transactions: %w", err)
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), &corev1.ConfigMap{}, p.recordHandler())); err != nil {
		return fmt.Errorf("watching records: %w", err)
	}
	if err := c.Watch(source.Func(p.age)); err != nil {
		return fmt.Errorf("looking for nodes that wait: %w", err)
	}
	if err := c.Watch(source.Func(p.followRing)); err != nil {
		return fmt.Errorf("following the ring: %w", err)
	}
	sweep := manager.RunnableFunc(func(ctx context.Context) error {
		p.Locks.Sweep(ctx, func(_ context.Context, node string) bool { return len(p.Index.Pending(node)) > 0 })
		return nil
	})
	if err := mgr.Add(sweep); err != nil {
		return fmt.Errorf("adding the garbage collection of locks: %w", err)
	}
	return nil
}

// reconcile drains the queue of one node under its lock when the node is due.
func (p *Processor) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := req.Name
	pending := p.Index.Pending(node)
	if len(pending) == 0 {
		p.Locks.Forget(node)
		p.schedule.Forget(node)
		return p.look(ctx, node)
	}
	what, place, now := schedule.Of(pending), p.Ring.Place(node), time.Now()
	wait := p.schedule.Wait(node, what, place, now)
	if wait > 0 {
		// followRing did not know of this node before: the ring may have changed just now.
		place = p.Ring.Place(node)
		wait = p.schedule.Wait(node, what, place, now)
	}
	if wait > 0 && !what.Urgent && p.applied(ctx, node, pending) {
		wait = p.schedule.Wait(node, what.AtOnce(), place, now) // nothing is left to coalesce
	}
	if wait > 0 {
		return reconcile.Result{RequeueAfter: wait, Priority: new(schedule.Priority(what.Urgent, place))}, nil
	}
	return job.UnderLock(ctx, p.Locks, node, func(ctx context.Context) error {
		p.schedule.Begin(node)
		err := p.drain(ctx, node)
		if err == nil {
			// Nothing is pending, and nobody may tell: a watch that was cut need not show deletes.
			p.schedule.Forget(node)
		}
		return err
	})
}
