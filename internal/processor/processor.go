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

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/processor/job"
	"nodekeeper.dev/internal/processor/schedule"
	"nodekeeper.dev/internal/processor/telemetry"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/ring"
)

const (
	// agePeriod is the interval between two searches for nodes that have waited for oldAge because
	// restores of other nodes came first.
	agePeriod = 10 * time.Second
	oldAge    = time.Minute
)

// Config configures a Processor. All fields except Ring, Lease, SaveDelay and Rewind are required.
type Config struct {
	// Applier applies transactions.
	Applier *apply.Applier
	// Records must be the Records of the Applier.
	Records *records.Records
	// Queue removes transactions. Index holds the transactions of all nodes.
	Queue *queue.Queue
	Index *queue.Index
	// Locks holds the locks of nodes.
	Locks *nodelock.Locker
	// Observer reports errors. It must be the Observer of the Applier.
	Observer *telemetry.Observer
	// Ring returns the rank of this process for each node. If it is nil, this process owns all nodes.
	Ring Ring
	// Lease publishes that transactions are applied late. If it is nil, that is not published.
	Lease Lease
	// SaveDelay is the batch period of saves, see [schedule.Due]. Zero means that saves do not wait.
	SaveDelay time.Duration
	// Rewind reports which cached transactions are unconfirmed. If it is nil, none is.
	Rewind *rewind.Detector
	// Workers is the number of nodes that are processed concurrently.
	Workers int
}

// Ring is the ring of the processors.
type Ring interface {
	// Place returns the place of this process for a node.
	Place(node string) ring.Place
	// RingChanges returns a channel that receives a value after Place may have changed.
	RingChanges() <-chan struct{}
}

// alone is the Ring of a process that owns all nodes.
type alone struct{}

// Place returns the place of the owner.
func (alone) Place(string) ring.Place { return ring.Place{} }

// RingChanges returns a channel that never receives a value.
func (alone) RingChanges() <-chan struct{} { return nil }

// Processor applies the transactions of every node.
type Processor struct {
	Config

	schedule schedule.Schedule
	earlier  earlier
	late     lateness
}

// New returns a Processor and registers its metrics, including those of its locks and its detector.
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

// Register adds the processor to the manager, whose cache must hold the ConfigMaps of the metadata
// namespace. The Index must run.
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
		return fmt.Errorf("starting the aging of nodes: %w", err)
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
		return p.recheck(ctx, node)
	}
	summary, place, now := schedule.Of(pending), p.Ring.Place(node), time.Now()
	wait := p.schedule.Wait(node, summary, place, now)
	if wait > 0 {
		// Read the ring again: Wait has made the node known to followRing only now, so an earlier change
		// of the ring did not reschedule it.
		place = p.Ring.Place(node)
		wait = p.schedule.Wait(node, summary, place, now)
	}
	if wait > 0 && !summary.Urgent && p.applied(ctx, node, pending) {
		wait = p.schedule.Wait(node, summary.AtOnce(), place, now) // there are no saves left to coalesce
	}
	if wait > 0 {
		return reconcile.Result{RequeueAfter: wait, Priority: new(schedule.Priority(summary.Urgent, place))}, nil
	}
	due := schedule.DueAtLast(summary, place, p.SaveDelay, now)
	return job.UnderLock(ctx, p.Locks, node, func(ctx context.Context) error {
		p.schedule.Begin(node)
		applied, err := p.drain(ctx, node)
		if applied > 0 {
			p.late.applied(p.Lease, due, time.Now())
		}
		if err == nil {
			// Nothing is pending, and no event may follow: an interrupted watch does not necessarily deliver
			// deletes.
			p.schedule.Forget(node)
		}
		return err
	})
}
