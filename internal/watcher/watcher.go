package watcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/history"
	"nodekeeper.dev/internal/liveness"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
)

const (
	// writers is how many nodes are written for at a time. A write waits for the API server
	// most of its time, and the API server's priority and fairness queues what is too much.
	writers = 16

	// A failed write is retried after minBackoff, doubling up to maxBackoff.
	minBackoff = 50 * time.Millisecond
	// It stays below the usual head start: a watcher that another one waits for is not to be late.
	maxBackoff = 2 * time.Second

	// startRetryPeriod is the time between two attempts to read all records at the start.
	startRetryPeriod = 2 * time.Second

	// turnStep is how long a watcher leaves an event to each of those that come before it on the ring: far longer than one
	// that works takes.
	turnStep = time.Second
	// turnLimit is how long it does so at most, should those be busy with others. It stays below the usual head start.
	turnLimit = 4 * time.Second

	// drainTimeout is how long a watcher that is told to stop goes on to write what it has
	// seen. It may be the only one that has.
	drainTimeout = 3 * time.Second

	// beat is the work that does nothing. No node has no name.
	beat = ""
)

// NewTurns returns the turns of a watcher on a ring.
func NewTurns(r ring.Placed) *ring.Turns { return ring.NewTurns(r, turnStep, turnLimit) }

// Config is what a Watcher is made from. All fields are required but HeadStart, Stored, Turns, Shuffled, History and RecordUpdates.
type Config struct {
	// Client reads and writes the API server itself.
	Client client.Client
	// Nodes is an informer of Nodes; metadata is all that it needs to hold (*metav1.PartialObjectMetadata).
	Nodes Informer
	// Stored holds the transactions and the records. The zero value: nothing is known of them.
	Stored Stored
	// Turns tells which events to leave to other watchers for a while, see [NewTurns]; nil: none.
	Turns *ring.Turns
	// Shuffled says that nodes are taken in no order, see [ring.NewQueue].
	Shuffled bool
	// Listings tells when that informer listed.
	Listings *Listings
	// HeadStart is how long the watcher, when it has listed the nodes anew, leaves the writing
	// to watchers that were watching already. Zero is right where there are none.
	HeadStart time.Duration
	// History tells when what the watcher has seen is in doubt; nil: never.
	History *history.History
	// Events takes the Warning events on Nodes.
	Events events.EventRecorder
	// Metrics registers the watcher's metrics.
	Metrics prometheus.Registerer
	// TransactionNamespace and MetadataNamespace are where transactions and records are.
	TransactionNamespace, MetadataNamespace string
	// RecordUpdates says whether changes of labels are recorded, not only adds and deletes.
	RecordUpdates bool
}

// Informer delivers the events of objects, those of one object in order.
type Informer interface {
	AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error
	HasSynced() bool
}

// Watcher records the events of Nodes as transactions.
type Watcher struct {
	client            client.Client
	nodes             Informer
	known             Stored
	turns             *ring.Turns
	listings          *Listings
	headStartTime     time.Duration
	history           *history.History
	events            events.EventRecorder
	metadataNamespace string
	observer          Observer
	queue             *txn.Queue
	metrics           metrics
	work              workqueue.TypedRateLimitingInterface[string] // names of nodes with pending transactions
	loop              liveness.Loop                                // of the writers and of the informer's handler

	isRecording atomic.Bool // whether the start is done
	isStopping  atomic.Bool // whether Run was told to end

	mu sync.Mutex
	// initial are the nodes that were there at the start, until they are compared with their records.
	initial map[string]*metav1.PartialObjectMetadata
	// pending are the transactions of each node that are not known to be stored, oldest first.
	pending map[string][]txn.Transaction
}

// New returns a Watcher.
func New(cfg Config) (*Watcher, error) {
	w := &Watcher{
		client:            cfg.Client,
		nodes:             cfg.Nodes,
		known:             cfg.Stored,
		turns:             cfg.Turns,
		listings:          cfg.Listings,
		headStartTime:     cfg.HeadStart,
		history:           cfg.History,
		events:            cfg.Events,
		metadataNamespace: cfg.MetadataNamespace,
		observer:          Observer{RecordUpdates: cfg.RecordUpdates},
		queue:             &txn.Queue{Client: cfg.Client, Namespace: cfg.TransactionNamespace},
		metrics:           newMetrics(),
		work:              ring.NewQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff), cfg.Shuffled),
		initial:           map[string]*metav1.PartialObjectMetadata{},
		pending:           map[string][]txn.Transaction{},
	}
	if err := w.register(cfg.Metrics, cfg.History); err != nil {
		return nil, err
	}
	return w, nil
}

// Run records until ctx is cancelled; then it writes what it has seen already, for three
// seconds at most, and returns. It is to be called once.
func (w *Watcher) Run(ctx context.Context) error {
	handle, err := w.nodes.AddEventHandler(w.handler(logf.FromContext(ctx)))
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	defer func() { _ = w.nodes.RemoveEventHandler(handle) }() // the informer ends with the process
	if w.known.Informer != nil {
		heard, err := w.known.Informer.AddEventHandler(w.storedHandler())
		if err != nil {
			return fmt.Errorf("watching transactions and records: %w", err)
		}
		defer func() { _ = w.known.Informer.RemoveEventHandler(heard) }() // as above
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), handle.HasSynced) {
		return nil // told to stop before anything was seen
	}
	w.giveHeadStart(ctx)
	w.start(ctx)
	w.write(ctx)
	return nil
}

// Ready is a readiness check: it returns an error until the watcher has compared the nodes with
// their records, from when on it records what it sees at once.
func (w *Watcher) Ready(*http.Request) error {
	if !w.isRecording.Load() {
		return errors.New("the nodes are not compared with their records yet")
	}
	return nil
}

// Live is a liveness check: it returns an error if a writer or the handler of events hangs. The API server may be away.
func (w *Watcher) Live(r *http.Request) error { return w.loop.Live(r) }

// start compares the nodes that are there with their records and puts what that
// gives before the events that came since. It tries until ctx is cancelled.
func (w *Watcher) start(ctx context.Context) {
	log := logf.FromContext(ctx)
	w.mu.Lock()
	initial := w.initial
	w.initial = nil
	w.mu.Unlock()

	var found map[string][]txn.Transaction
	err := wait.PollUntilContextCancel(ctx, startRetryPeriod, true, func(ctx context.Context) (bool, error) {
		var err error
		if found, err = w.catchUpAll(ctx, initial); err != nil {
			log.Error(err, "Comparing the nodes with their records failed, trying again")
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return // only ctx ends the attempts
	}

	count := 0
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, transactions := range found {
		if len(transactions) == 0 {
			continue // the node has nothing to add to what came since
		}
		count += len(transactions)
		w.pending[name] = append(transactions, w.pending[name]...)
		w.work.Add(name)
	}
	log.Info("Compared nodes with their records", "nodes", len(initial), "changed", count)
	w.isRecording.Store(true)
}

// write stores pending transactions until ctx is cancelled and what was seen by then is stored too.
func (w *Watcher) write(ctx context.Context) {
	writeCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for w.writeNext(writeCtx) {
			}
		})
	}
	wg.Go(func() { wait.UntilWithContext(writeCtx, func(context.Context) { w.work.Add(beat) }, liveness.Period) })
	<-ctx.Done()
	w.drain(writeCtx)
	cancel()
	wg.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) > 0 {
		logf.FromContext(ctx).Info("Stopped before every event was stored", "nodes", len(w.pending))
	}
}

// drain returns when all that is pending is stored, after drainTimeout at the latest, and ends the queue.
func (w *Watcher) drain(ctx context.Context) {
	defer w.work.ShutDown()
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	w.isStopping.Store(true)
	// The error says that the time is over: write tells what is left.
	_ = wait.PollUntilContextCancel(ctx, minBackoff, true, func(context.Context) (bool, error) {
		return w.hurry() == 0 || w.history.WentBack(), nil
	})
}

// hurry lets no node with pending transactions wait any longer, for a retry for instance, and returns how many there are.
func (w *Watcher) hurry() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for node := range w.pending {
		w.work.Add(node)
	}
	return len(w.pending)
}

// writeNext takes a node and stores its pending transactions. It returns false when there is no more to do.
func (w *Watcher) writeNext(ctx context.Context) bool {
	node, shutdown := w.work.Get()
	if shutdown {
		return false
	}
	defer w.work.Done(node)
	if node == beat {
		w.loop.Beat()
		return true
	}
	defer w.loop.Begin(node)()
	if left := w.headStart(); left > 0 && !w.isStopping.Load() { // after a gap in the watch
		w.work.AddAfter(node, left)
		return true
	}
	left, err := w.flush(ctx, node)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Recording failed, trying again", "node", node)
		w.work.AddRateLimited(node)
		return true
	}
	w.work.Forget(node)
	if left > 0 {
		w.work.AddAfter(node, left)
	}
	return true
}

// flush stores the pending transactions of a node in order. It stops at the first that fails, and at one that is to be left to others
// for a while.
func (w *Watcher) flush(ctx context.Context, node string) (left time.Duration, err error) {
	log := logf.FromContext(ctx)
	for {
		t, count := w.oldest(node)
		if count == 0 {
			w.turns.Forget(node)
			return 0, nil
		}
		left, isKnown := w.leave(ctx, t, count)
		if left > 0 {
			return left, nil
		}
		if isKnown {
			log.V(1).Info("Left out what is stored already", "node", node, "type", t.Type, "resourceVersion", t.ResourceVersion, "uid", t.UID)
			w.stored(node)
			continue
		}
		err := w.put(ctx, t)
		switch {
		case errors.Is(err, txn.ErrTooLarge):
			// It can never be stored, and must not hold up what comes after it.
			w.reportTooLarge(log, t, err)
		case err != nil:
			return 0, err
		default:
			w.metrics.recorded.WithLabelValues(string(t.Type)).Inc()
			log.Info("Recorded transaction", "node", node, "type", t.Type, "resourceVersion", t.ResourceVersion, "uid", t.UID)
		}
		w.turns.Forget(node)
		w.stored(node)
		w.loop.Progress(node)
	}
}

// put stores a transaction, after a fresh look if it is in doubt.
func (w *Watcher) put(ctx context.Context, t txn.Transaction) error {
	if w.history.WentBack() {
		return history.ErrWentBack // what there is now is recorded by who starts anew
	}
	if w.history.InDoubt() {
		if err := w.queue.ConfirmEvent(ctx, t, w.history.Lost); err != nil {
			return err
		}
	}
	return w.queue.Put(ctx, t)
}

func (w *Watcher) reportTooLarge(log logr.Logger, t txn.Transaction, err error) {
	w.metrics.tooLarge.Inc()
	log.Error(err, "Lost an event: its labels cannot be stored", "node", t.Node, "type", t.Type, "resourceVersion", t.ResourceVersion, "uid", t.UID)
	w.events.Eventf(nodeReference(t.Node, t.UID), nil, corev1.EventTypeWarning, "LabelsTooLarge", "Record",
		"The labels of this node are not kept: they do not fit a ConfigMap, whose values may have %d bytes. Remove labels that nobody needs.", txn.MaxDataBytes)
}

// oldest returns the first of the node's pending transactions, and how many there are.
func (w *Watcher) oldest(node string) (t txn.Transaction, count int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending[node]) == 0 {
		return txn.Transaction{}, 0
	}
	return w.pending[node][0], len(w.pending[node])
}

// stored takes the first of the node's pending transactions away.
func (w *Watcher) stored(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending[node]) == 1 {
		delete(w.pending, node)
		return
	}
	w.pending[node] = w.pending[node][1:]
}

// nodeReference is one incarnation of a node as the object of an event.
func nodeReference(node string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}
}
