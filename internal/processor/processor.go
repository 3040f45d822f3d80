package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/internal/history"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/liveness"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
)

const (
	// A node whose transaction cannot be applied is tried again after minBackoff, doubling up to maxBackoff.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second

	// contendedRetry is when to come again at the latest to a node whose lock another processor holds: it may be released.
	contendedRetry = time.Second
	// contendedPause is when to come again at the earliest.
	contendedPause = 100 * time.Millisecond

	// turn is how many transactions of a node are applied before those that wait have their turn: a node whose queue never gets
	// empty is not to keep a worker for itself.
	turn = 20
	// nextTurn is when such a node is behind those that wait.
	nextTurn = time.Millisecond

	// nodeController is the name of the controller that drains the queues of nodes.
	nodeController = "node"

	// usePriorityQueue is false for what the priority queue of controller-runtime v0.24.1 does when it is shut down amid
	// work: it can hang, and the process with it (https://github.com/kubernetes-sigs/controller-runtime/issues/3538).
	usePriorityQueue = false

	// turnStep is how long a processor leaves a transaction to each of those that come before it on the ring. The
	// duration of a lock that one of them left behind counts meanwhile, see [nodelock.Locker.Observe].
	turnStep = 3 * time.Second
	// turnLimit is how long it does so at most, where the owner is busy but not with this.
	turnLimit = time.Minute
)

// NewTurns returns the turns of a processor on a ring.
func NewTurns(r ring.Placed) *ring.Turns { return ring.NewTurns(r, turnStep, turnLimit) }

// errTurnOver says that a node has more transactions than are applied in one turn.
var errTurnOver = errors.New("there is more to do for this node")

// Config is what a Processor is made from. All fields are required but Turns, Shuffled, SaveDelay, History, Retention and Protect.
type Config struct {
	// Client reads and writes the API server itself.
	Client client.Client
	// Cache holds the ConfigMaps of both namespaces, with the index [txn.NodeHashIndex]; with Protect also the metadata of
	// Nodes, of which annotations and owner references may be missing.
	Cache client.Reader
	// Locks are the locks of the nodes.
	Locks *nodelock.Locker
	// Turns tells which nodes to leave to other processors for a while, see [NewTurns]; nil: none.
	Turns *ring.Turns
	// Shuffled says that nodes are taken in no order, see [ring.NewQueue].
	Shuffled bool
	// SaveDelay is how long transactions that only save wait for others of their node. A restore waits for nothing. Zero: not at all.
	SaveDelay time.Duration
	// History tells when what the cache holds is in doubt; nil: never.
	History *history.History
	// Events takes the events on Nodes, records and malformed transactions.
	Events events.EventRecorder
	// Metrics registers the metrics of the processor, of Locks and of History.
	Metrics prometheus.Registerer
	// TransactionNamespace and MetadataNamespace are where transactions and records are.
	TransactionNamespace, MetadataNamespace string
	// Policy says which labels a restore writes.
	Policy labels.Policy
	// Workers is how many nodes are worked on at a time.
	Workers int
	// Retention is how long a record is kept after its node went away; zero: for ever.
	Retention time.Duration
	// Protect says whether Nodes get the [Finalizer].
	Protect bool
}

// Processor applies the transactions of every node.
type Processor struct {
	client               client.Client
	locks                *nodelock.Locker
	turns                *ring.Turns
	isShuffled           bool
	saves                *patience
	history              *history.History
	events               events.EventRecorder
	transactionNamespace string
	policy               labels.Policy
	workers              int
	retention            time.Duration
	isProtecting         bool
	late                 lateEdits
	queue                *txn.Queue
	records              *store
	metrics              metrics
	informing            *rate.Limiter             // of Normal events
	loops                map[string]*liveness.Loop // of the controllers, by name
}

// New returns a Processor.
func New(cfg Config) (*Processor, error) {
	m := newMetrics()
	p := &Processor{
		client:               cfg.Client,
		locks:                cfg.Locks,
		turns:                cfg.Turns,
		isShuffled:           cfg.Shuffled,
		saves:                newPatience(cfg.SaveDelay),
		history:              cfg.History,
		events:               cfg.Events,
		transactionNamespace: cfg.TransactionNamespace,
		policy:               cfg.Policy,
		workers:              cfg.Workers,
		retention:            cfg.Retention,
		isProtecting:         cfg.Protect,
		queue:                &txn.Queue{Reader: cfg.Cache, Client: cfg.Client, Namespace: cfg.TransactionNamespace},
		records: &store{
			cache: cfg.Cache, client: cfg.Client, namespace: cfg.MetadataNamespace, conflicts: m.conflicts.WithLabelValues(recordObject),
		},
		metrics:   m,
		informing: rate.NewLimiter(informRate, informBurst),
		loops:     map[string]*liveness.Loop{},
	}
	if err := p.register(cfg.Metrics); err != nil {
		return nil, err
	}
	return p, nil
}

// Index adds to a manager's cache the index that a Processor's Cache needs.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.ConfigMap{}, txn.NodeHashIndex, txn.IndexNodeHash); err != nil {
		return fmt.Errorf("indexing transactions: %w", err)
	}
	return nil
}

// AddTo makes the manager run the processor. The manager's cache is to be Config.Cache.
func (p *Processor) AddTo(mgr manager.Manager) error {
	nodes, err := p.controller(mgr, nodeController, p.reconcileNode)
	if err != nil {
		return err
	}
	if err := nodes.Watch(source.Kind(mgr.GetCache(), &corev1.ConfigMap{}, handler.TypedEnqueueRequestsFromMapFunc(p.nodeOf))); err != nil {
		return fmt.Errorf("watching transactions and records: %w", err)
	}
	if err := p.addMalformed(mgr); err != nil {
		return err
	}
	if err := p.addProtection(mgr); err != nil {
		return err
	}
	return p.addSweeps(mgr)
}

// controller returns a controller whose requests are the names of nodes.
func (p *Processor) controller(mgr manager.Manager, name string, do reconcile.Func) (controller.Controller, error) {
	loop, err := addProbes(mgr, name)
	if err != nil {
		return nil, err
	}
	p.loops[name] = loop
	c, err := controller.New(name, mgr, controller.Options{
		MaxConcurrentReconciles: p.workers,
		NeedLeaderElection:      new(false),
		SkipNameValidation:      new(true), // more than one processor may run in one process
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return ring.NewQueue(name, limiter, p.isShuffled) // and not the priority queue, see usePriorityQueue
		},
		Reconciler: probed(loop, do),
		LogConstructor: func(req *reconcile.Request) logr.Logger {
			if req == nil {
				return mgr.GetLogger()
			}
			return mgr.GetLogger().WithValues("node", req.Name)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the controller %q: %w", name, err)
	}
	if err := c.Watch(beats()); err != nil {
		return nil, fmt.Errorf("giving the controller %q its beats: %w", name, err)
	}
	return c, nil
}

// addSweeps makes the manager remove what is left behind.
func (p *Processor) addSweeps(mgr manager.Manager) error {
	if err := mgr.Add(manager.RunnableFunc(p.sweepLocks)); err != nil {
		return fmt.Errorf("adding the sweep of locks: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(p.observeLocks)); err != nil {
		return fmt.Errorf("adding the look at the locks of others: %w", err)
	}
	if p.retention == 0 {
		return nil
	}
	if err := mgr.Add(manager.RunnableFunc(p.sweepRecords)); err != nil {
		return fmt.Errorf("adding the sweep of records: %w", err)
	}
	return nil
}

// nodeOf returns the node that a transaction or a record belongs to. A changed record
// matters too: a node may wait for one to be mended.
func (p *Processor) nodeOf(_ context.Context, cm *corev1.ConfigMap) []reconcile.Request {
	node := cm.Name
	switch {
	case cm.Name == record.RootCAName:
		return nil
	case cm.Namespace == p.transactionNamespace:
		// One that is malformed brings a node here for nothing, at worst.
		if node = txn.NodeOf(cm); node == "" {
			return nil
		}
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: node}}}
}

// reconcileNode drains the queue of one node under its lock, if it is this processor's turn.
func (p *Processor) reconcileNode(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := req.Name
	pending, err := p.queue.Pending(ctx, txn.NodeHash(node))
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(pending) == 0 {
		p.locks.Forget(node)
		p.saves.forget(node)
		p.turns.Done(node, time.Now())
		return reconcile.Result{}, nil
	}
	now := time.Now() // which is when it came to know of it, if it did not before
	if wait := p.saves.wait(node, pending, now); wait > 0 && !p.isApplied(ctx, pending) {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if wait := p.turns.Wait(node, string(pending[0].ObjectUID), now, now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return p.underLock(ctx, node, func(ctx context.Context) error {
		p.turns.Begin(node) // its owner is not waited for again after each turn, or before another attempt
		if err := p.drain(ctx, node); err != nil {
			return err
		}
		p.turns.Forget(node)
		return nil
	})
}

// isApplied says whether the cache shows that all of a node's transactions have had their effect: then they are only to be removed.
func (p *Processor) isApplied(ctx context.Context, pending []txn.Queued) bool {
	saved, err := p.records.cached(ctx, pending[0].Node)
	return err == nil && saved.record != nil &&
		!slices.ContainsFunc(pending, func(t txn.Queued) bool { return !preserve.Applied(t.Transaction, *saved.record) })
}

// underLock does work for a node under its lock, or says when to come again if another processor holds that.
func (p *Processor) underLock(ctx context.Context, node string, work func(context.Context) error) (reconcile.Result, error) {
	err := p.locks.Do(ctx, node, work)
	switch {
	case errors.Is(err, nodelock.ErrHeld):
		return reconcile.Result{RequeueAfter: min(contendedRetry, max(contendedPause, p.locks.HeldFor(node)))}, nil
	case errors.Is(err, errTurnOver):
		return reconcile.Result{RequeueAfter: nextTurn}, nil
	case ctx.Err() != nil:
		return reconcile.Result{}, nil //nolint:nilerr // told to stop: what is left is for the next processor
	}
	return reconcile.Result{}, err
}

// hasPending says whether the cache has a transaction of the node. If the cache is behind, its
// update brings the node here again.
func (p *Processor) hasPending(ctx context.Context, node string) bool {
	pending, err := p.queue.Pending(ctx, txn.NodeHash(node))
	return err != nil || len(pending) > 0
}

// drain applies the transactions of a node, oldest first, those together that have their effect together, until there are none or its
// turn is over, and stops at the first that cannot be applied.
func (p *Processor) drain(ctx context.Context, node string) error {
	done := map[types.UID]bool{} // removed, but perhaps in the cache for a moment
	for {
		pending, err := p.queue.Pending(ctx, txn.NodeHash(node))
		if err != nil {
			return err
		}
		pending = slices.DeleteFunc(pending, func(t txn.Queued) bool { return done[t.ObjectUID] })
		if len(pending) == 0 {
			return nil
		}
		if len(done) == turn {
			return errTurnOver
		}
		applied, err := p.applyGroups(ctx, p.groups(pending[:min(len(pending), turn-len(done))]))
		// Remove last: a crash before this repeats the steps, which then have no effect.
		for _, t := range applied {
			if err := p.queue.Remove(ctx, t); err != nil {
				return err
			}
			done[t.ObjectUID] = true
			p.loops[nodeController].Progress(node)
		}
		if err != nil {
			return err
		}
	}
}

// isQueued says whether a transaction is in the queue and not only in the cache.
func (p *Processor) isQueued(ctx context.Context, t txn.Queued) (bool, error) {
	isQueued, err := p.queue.Has(ctx, t)
	if err == nil && !isQueued {
		logf.FromContext(ctx).Info("Skipped a transaction that is not in the queue any more", "type", t.Type, "resourceVersion", t.ResourceVersion, "uid", t.UID)
	}
	return isQueued, err
}

// sweepLocks removes locks that were left behind.
func (p *Processor) sweepLocks(ctx context.Context) error {
	p.locks.Sweep(ctx, p.hasPending)
	return nil
}

// observeLocks looks at the locks of those that nodes are left to.
func (p *Processor) observeLocks(ctx context.Context) error {
	p.locks.Observe(ctx, p.turns.IsWaiting)
	return nil
}
