package watcher

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher/liveness"
)

const (
	// writers is the number of nodes written concurrently. A write mostly waits for the API server,
	// whose priority and fairness queues excess requests.
	writers = 16

	// A failed write is retried after minBackoff, doubling up to maxBackoff.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second

	// drainTimeout bounds how long a watcher writes pending events at its shutdown. No other
	// watcher may have seen them.
	drainTimeout = 3 * time.Second
	// drainRetry is the time between two attempts at everything during the shutdown.
	drainRetry = 200 * time.Millisecond

	// takenRetry is when a transaction whose name is taken is retried, unless the watch reports
	// before that the name is free.
	takenRetry = time.Minute

	// lookupTimeout bounds the read that may save a write. client-go repeats a read that an
	// overloaded API server rejects.
	lookupTimeout = time.Second

	// heartbeat is a no-op work item; node names are never empty.
	heartbeat = ""
)

// errParked means that the circuit is open. It returns the node later.
var errParked = errors.New("writes fail for many nodes: a few are retried at a time")

// writer flushes the outbox.
type writer struct {
	outbox  *Outbox
	turn    *turn
	history *rewind.Detector
	circuit circuit
	work    workqueue.TypedRateLimitingInterface[string] // names of nodes with events
	loop    liveness.Loop                                // of the writers and of the informer's handler
	stored  func()                                       // called after each event that is stored
}

func newWriter(o *Outbox, t *turn, h *rewind.Detector, stored func()) *writer {
	return &writer{
		outbox: o, turn: t, history: h, stored: stored,
		work: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff)),
	}
}

// Run stores the events in the outbox until ctx is cancelled, and then the remaining ones.
func (w *writer) Run(ctx context.Context) {
	writeCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for w.next(writeCtx) {
			}
		})
	}
	wg.Go(func() {
		wait.UntilWithContext(writeCtx, func(context.Context) { w.work.Add(heartbeat) }, liveness.Period)
	})
	wg.Go(func() {
		wait.UntilWithContext(writeCtx, func(context.Context) { w.add(w.circuit.Probe(time.Now())) }, minBackoff)
	})
	<-ctx.Done()
	w.drain(writeCtx)
	cancel()
	wg.Wait()
	if left := len(w.outbox.Nodes()); left > 0 {
		logf.FromContext(ctx).Info("Stopped before every event was stored", "nodes", left)
	}
}

func (w *writer) add(names []string) {
	for _, node := range names {
		w.work.Add(node)
	}
}

// retryAll retries every node with events at once.
func (w *writer) retryAll() { w.add(w.outbox.Nodes()) }

// changed retries a node whose transactions or record changed.
func (w *writer) changed(node string) {
	if w.outbox.Len(node) > 0 {
		w.work.Add(node)
	}
}

// freed retries the nodes with a hash: a name of one of their transactions may be free.
func (w *writer) freed(hash string) {
	for _, node := range w.outbox.Nodes() {
		if txn.NodeHash(node) == hash {
			w.work.Add(node)
		}
	}
}

// drain waits until all events that wait for no barrier are stored, for drainTimeout at most, and
// shuts the queue down. Events that wait for a barrier were concluded from a list or come after it:
// the next watcher draws the same conclusions, and the running ones may know better.
func (w *writer) drain(ctx context.Context) {
	defer w.work.ShutDown()
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	w.turn.expedited.Store(true)
	w.circuit.Expedite(time.Now())
	var tried time.Time
	// The error means that the time is over: Run logs the remaining events.
	_ = wait.PollUntilContextCancel(ctx, minBackoff, true, func(context.Context) (bool, error) {
		if time.Since(tried) >= drainRetry {
			tried = time.Now()
			w.retryAll()
		}
		return w.outbox.Free() == 0 || w.history.Rewound(), nil
	})
}

// next takes a node and stores its events. It returns false after the shutdown of the queue.
func (w *writer) next(ctx context.Context) bool {
	node, shutdown := w.work.Get()
	if shutdown {
		return false
	}
	defer w.work.Done(node)
	if node == heartbeat {
		w.loop.Beat()
		return true
	}
	defer w.loop.Begin(node)()
	left, err := w.outbox.Flush(ctx, node)
	switch {
	case errors.Is(err, ErrHeld):
		// The barrier calls retryAll.
	case errors.Is(err, errParked):
		// The circuit returns the node.
	case err != nil:
		w.retry(ctx, node, err)
	default:
		w.work.Forget(node)
		if left > 0 {
			w.work.AddAfter(node, left)
		} else if w.outbox.Len(node) == 0 {
			w.add(w.circuit.Settle(node))
		}
	}
	return true
}

// mayWrite reports whether a node may write now. If not, the circuit returns it later.
func (w *writer) mayWrite(node string) bool { return w.circuit.Enter(node, time.Now()) }

// retry retries a node later.
func (w *writer) retry(ctx context.Context, node string, err error) {
	log := logf.FromContext(ctx)
	if errors.Is(err, queue.ErrNameTaken) && w.turn.stored.watches() {
		log.Info("Waiting until the name of a transaction is free", "node", node, "reason", err.Error())
		w.work.AddAfter(node, takenRetry)
		return
	}
	if !queue.IsNameConflict(err) && w.circuit.Fail(node, time.Now()) {
		log.V(1).Info("Failed to record: writes fail for many nodes, retrying a few at a time", "node", node, "reason", err.Error())
		return
	}
	log.Error(err, "Failed to record, retrying", "node", node)
	w.work.AddRateLimited(node)
}

// succeeded records that an event of a node was written.
func (w *writer) succeeded(node string) {
	w.add(w.circuit.Close())
	w.found(node)
}

// found records that an event of a node is stored, which proves nothing about writes.
func (w *writer) found(node string) {
	w.loop.Progress(node)
	w.stored()
}

// store adds transactions to the queue.
type store struct {
	queue   *queue.Queue
	nodes   *nodes.Nodes
	history *rewind.Detector
	// isSetBack reports whether the Lease of this watcher shows that the cluster was rewound; nil means
	// never. compared is when that was last asked.
	isSetBack func(context.Context) (bool, error)
	compared  atomic.Pointer[time.Time]
	events    events.EventRecorder
	metrics   *metrics
	allowed   func(node string) bool // whether to send a request now
	stored    func(node string)
	// storedByOthers reports whether another watcher has most likely stored a transaction; found is
	// called if it has.
	storedByOthers func(txn.Transaction) bool
	found          func(node string)
}

var _ Store = (*store)(nil)

// Put stores a transaction, after a live read if it is unconfirmed. A transaction that can never be
// stored counts as stored, because it must not block later ones.
func (s *store) Put(ctx context.Context, t txn.Transaction) error {
	if !s.allowed(t.Node) {
		return errParked
	}
	log := logf.FromContext(ctx).WithValues("node", t.Node, "type", t.Type, "resourceVersion", t.Revision, "uid", t.UID)
	if s.storedByOthers(t) && s.isFound(ctx, t) {
		s.metrics.recorded.WithLabelValues(string(t.Type)).Inc()
		log.V(1).Info("Found that another watcher has recorded the transaction")
		s.found(t.Node) // it proves nothing about writes
		return nil
	}
	err := s.put(ctx, t)
	switch {
	case errors.Is(err, queue.ErrTooLarge):
		s.metrics.tooLarge.Inc()
		log.Error(err, "Dropped an event: its labels are too large")
		s.events.Eventf(nodes.Reference(t.Node, t.UID), nil, corev1.EventTypeWarning, reasons.LabelsTooLarge, "Record",
			"The labels of this node are not saved: they do not fit into a ConfigMap, whose values are limited to %d bytes. Remove unneeded labels.", txn.MaxDataBytes)
	case err != nil:
		return err
	default:
		s.metrics.recorded.WithLabelValues(string(t.Type)).Inc()
		log.Info("Recorded transaction")
	}
	s.stored(t.Node)
	return nil
}

// isFound reports whether a read finds the transaction in the queue, which costs less than a write
// that is rejected because it is there. Without a response it is written.
func (s *store) isFound(ctx context.Context, t txn.Transaction) bool {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := s.queue.HasEvent(ctx, t)
	return err == nil && found && !s.history.Rewound()
}

func (s *store) put(ctx context.Context, t txn.Transaction) error {
	if s.history.Rewound() {
		return rewind.ErrRewound // the next process records the current state
	}
	if err := s.confirmHistory(ctx); err != nil {
		return err
	}
	if s.history.Unconfirmed(t.ObservedAt) {
		if err := s.nodes.ConfirmEvent(ctx, t, s.history.ReportRewind); err != nil {
			return err
		}
	}
	return s.queue.Put(ctx, t)
}

// confirmHistory returns an error if the cluster was rewound. It asks after each interruption,
// and once a second during one, since a restore of etcd takes longer: its revisions may have passed
// all that this process has seen, and a Node that has changed since then contradicts nothing.
func (s *store) confirmHistory(ctx context.Context) error {
	compared, at := cmp.Or(s.compared.Load(), &time.Time{}), time.Now()
	if s.isSetBack == nil || !s.history.Unconfirmed(*compared) || at.Sub(*compared) < time.Second {
		return nil
	}
	isSetBack, err := s.isSetBack(ctx)
	switch {
	case err != nil:
		return err
	case isSetBack:
		return s.history.ReportRewind("the Lease of this watcher is earlier than it was")
	}
	s.compared.Store(&at)
	return nil
}
