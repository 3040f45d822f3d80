package watcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/txn"
)

// startRetryPeriod is the time between two attempts to read all records at the start.
const startRetryPeriod = 2 * time.Second

// DefaultSilence is how long a watcher waits for one that neither renews its Lease nor answers,
// unless it is told otherwise.
const DefaultSilence = 5 * time.Second

// Config is what a Watcher is made from. All fields are required but Stream, Stored, Name, Members,
// Lease, Ring, Uptime, History and RecordUpdates.
type Config struct {
	// Client reads and writes the API server itself.
	Client client.Client
	// Nodes is an informer of Nodes; metadata is all that it needs to hold
	// (*metav1.PartialObjectMetadata). It must not have listed yet.
	Nodes Informer
	// Stream follows that informer; nil if that lists once and misses nothing.
	Stream *Stream
	// Stored holds the transactions and the records. The zero value: nothing is known of them.
	Stored Stored
	// Name is that of this watcher among its Members.
	Name string
	// Members are the watchers, Lease is that of this one, which does not serve yet, and Ring says
	// which one goes first. All are nil if it is the only one.
	Members Members
	Lease   Lease
	Ring    Ring
	// Silence is how long the watcher waits for another one that neither renews its Lease nor
	// answers.
	Silence time.Duration
	// Uptime is a clock that counts the time in which the machine is suspended, too. Nil: that of
	// the kernel.
	Uptime func() time.Duration
	// History tells when what the watcher has seen is in doubt; nil: never.
	History *rewind.Detector
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
	config  Config
	known   *known
	handler *handler
	handle  toolscache.ResourceEventHandlerRegistration
	outbox  *Outbox
	barrier *barrier
	writer  *writer
	catchUp *catchUp
	metrics metrics

	concluding chan struct{} // receives when doubts may be resolved
	recording  atomic.Bool   // whether the start is done
	serving    bool          // what the Lease says; belongs to the goroutine of Converse
}

// New returns a Watcher. From now on it takes in what the informer of Nodes delivers.
func New(ctx context.Context, cfg Config) (*Watcher, error) {
	if cfg.Stream == nil {
		cfg.Stream = &Stream{lists: []listing{{at: revision.MustParse("1")}}}
	}
	w := &Watcher{config: cfg, outbox: &Outbox{}, metrics: newMetrics(), concluding: make(chan struct{}, 1)}
	w.known = &known{cfg.Stored, cfg.History, cfg.TransactionNamespace, cfg.MetadataNamespace}
	w.barrier = newBarrier(&cfg, w.outbox.Holds)
	g := &gate{barrier: w.barrier, ring: cfg.Ring, known: w.known}
	w.writer = newWriter(w.outbox, g, cfg.History, w.barrier.pokeIfBusy)
	transactions := &queue.Queue{Client: cfg.Client, Namespace: cfg.TransactionNamespace}
	w.outbox.Known, w.outbox.Gate = w.known, g
	w.outbox.Store = &store{
		queue: transactions, nodes: &nodes.Nodes{Client: cfg.Client}, history: cfg.History, events: cfg.Events, metrics: &w.metrics,
		allowed: w.writer.mayWrite, storedByOthers: g.storedByOthers, stored: w.writer.succeeded, found: w.writer.found,
	}
	w.barrier.looked, w.barrier.passed, w.barrier.asked = w.serve, w.passed, w.writer.retryAll
	observer := Observer{RecordUpdates: cfg.RecordUpdates}
	w.catchUp = &catchUp{observer, transactions, &records.Records{Client: cfg.Client, Namespace: cfg.MetadataNamespace}}
	w.handler = &handler{
		log: logf.FromContext(ctx), observer: observer, stream: cfg.Stream, outbox: w.outbox, history: cfg.History, events: cfg.Events,
		loop: &w.writer.loop, added: w.writer.work.Add, doubted: w.conclude,
	}
	if err := w.register(cfg.Metrics, cfg.History); err != nil {
		return nil, err
	}
	var err error
	if w.handle, err = cfg.Nodes.AddEventHandler(w.handler); err != nil {
		return nil, fmt.Errorf("watching nodes: %w", err)
	}
	return w, nil
}

// Converse asks other watchers what they have not stored yet, and answers them, until ctx is done.
// It must run before the informer of Nodes does, for longer than Run, and once.
func (w *Watcher) Converse(ctx context.Context) error {
	w.barrier.Run(ctx)
	return nil
}

// Run records until ctx is cancelled; then it writes what it has seen already, for three seconds at
// most, and returns. It must be called once.
func (w *Watcher) Run(ctx context.Context) error {
	defer func() { _ = w.config.Nodes.RemoveEventHandler(w.handle) }() // the informer ends with the process
	if stored := w.config.Stored.Informer; stored != nil {
		heard, err := stored.AddEventHandler(w.known.handler(w.writer.changed))
		if err != nil {
			return fmt.Errorf("watching transactions and records: %w", err)
		}
		defer func() { _ = stored.RemoveEventHandler(heard) }() // as above
	}
	select {
	case <-ctx.Done():
		return nil // shut down before anything was seen
	case <-w.handle.HasSyncedChecker().Done():
	}
	w.start(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { w.resolveDoubts(ctx) })
	w.writer.Run(ctx)
	wg.Wait()
	return nil
}

// Ready is a readiness check: it returns an error until the watcher has compared the nodes with
// their records, from when on it records what it sees at once.
func (w *Watcher) Ready(*http.Request) error {
	if !w.recording.Load() {
		return errors.New("the nodes have not been compared with their records yet")
	}
	return nil
}

// Live is a liveness check: it returns an error if a writer or the handler of events hangs. The API
// server may be away.
func (w *Watcher) Live(r *http.Request) error { return w.writer.loop.Live(r) }

// passed goes on with what has waited for a barrier.
func (w *Watcher) passed() {
	w.writer.retryAll()
	w.conclude()
}

// conclude lets doubts be resolved.
func (w *Watcher) conclude() {
	select {
	case w.concluding <- struct{}{}:
	default: // told already
	}
}

// resolveDoubts compares nodes with their records after a gap, as at the start, until ctx is
// cancelled.
func (w *Watcher) resolveDoubts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.concluding:
		}
		doubts := w.handler.doubts()
		if len(doubts) == 0 {
			continue
		}
		found, err := w.compare(ctx, doubts)
		if err != nil {
			return // only ctx ends the attempts
		}
		for name, d := range doubts {
			w.handler.resolve(d, found[name])
		}
	}
}

// compare compares nodes with their records. It tries until ctx is cancelled.
func (w *Watcher) compare(ctx context.Context, doubts map[string]doubt) (found map[string][]txn.Transaction, err error) {
	err = wait.PollUntilContextCancel(ctx, startRetryPeriod, true, func(ctx context.Context) (bool, error) {
		var err error
		if found, err = w.catchUp.All(ctx, doubts); err != nil {
			logf.FromContext(ctx).Error(err, "Failed to compare nodes with their records, retrying")
			return false, nil
		}
		return true, nil
	})
	return found, err //nolint:wrapcheck // that of ctx
}

// serve takes this watcher's share of the nodes while it records what it concludes, and gives it up
// otherwise: others record at once what they see of them then. Only the barrier calls it, so that
// of two changes the later one is also written later.
func (w *Watcher) serve() {
	serving := w.recording.Load() && w.barrier.Concludes()
	if w.serving != serving && w.config.Lease != nil {
		w.config.Lease.SetServing(serving)
	}
	w.serving = serving
}

// start waits for the barrier of the first list, compares the nodes in it with their records and
// puts what that gives before the events that came since.
func (w *Watcher) start(ctx context.Context) {
	log := logf.FromContext(ctx)
	listed := time.Now() // the wait for the barrier is part of what every delay bounds
	select {
	case <-ctx.Done():
		return
	case <-w.barrier.first:
	}
	initial := w.handler.takeInitial(listed)
	found, err := w.compare(ctx, initial)
	if err != nil {
		return // only ctx ends the attempts
	}
	count := 0
	for _, transactions := range found {
		count += len(transactions)
		w.handler.addFirst(transactions)
	}
	log.Info("Compared nodes with their records", "nodes", len(initial), "changed", count)
	w.recording.Store(true)
	w.barrier.poke() // it calls serve
}
