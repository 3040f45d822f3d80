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

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/daemon/signal"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher/barrier"
)

// startRetryPeriod is the time between two attempts to read all records at the start.
const startRetryPeriod = 2 * time.Second

// DefaultSilence is the default of [Config].Silence.
const DefaultSilence = 5 * time.Second

// Config configures a Watcher. All fields are required except Stream, Stored, StoredInformer, Name,
// Members, Lease, Ring, IsSetBack, History and RecordUpdates.
type Config struct {
	// Client reads and writes the API server directly, without a cache.
	Client client.Client
	// Nodes is an informer of Nodes that delivers [nodeview.Node]. It must not have listed yet.
	Nodes Informer
	// Stream tracks that informer. It is nil if the informer lists once and misses nothing.
	Stream *barrier.Stream
	// Stored has the transactions and the records that StoredInformer delivers, whose transform is
	// [Stored.Transform]. Both are nil if they are unknown.
	Stored         *Stored
	StoredInformer Informer
	// Name is the name of this watcher among its Members.
	Name string
	// Members are the watchers, Lease is the Lease of this one, which does not serve yet, and Ring
	// orders them. All are nil if it is the only one.
	Members barrier.Members
	Lease   Lease
	Ring    Ring
	// IsSetBack reports whether Lease is an earlier version than this process has stored; nil means
	// never.
	IsSetBack func(context.Context) (bool, error)
	// Silence is how long the watcher waits for another one that neither renews its Lease nor
	// answers.
	Silence time.Duration
	// History reports when events that the watcher has seen are unconfirmed; nil means never.
	History *rewind.Detector
	// Events records the Warning events on Nodes.
	Events events.EventRecorder
	// Metrics registers the watcher's metrics.
	Metrics prometheus.Registerer
	// TransactionNamespace and MetadataNamespace contain the transactions and the records.
	TransactionNamespace, MetadataNamespace string
	// RecordUpdates enables recording of label changes besides adds and deletes.
	RecordUpdates bool
	// MachineBound selects the labels that belong to a machine.
	MachineBound labels.MachineBound
}

// Lease is the Lease of this watcher.
type Lease interface {
	barrier.Lease
	// SetServing publishes whether this watcher serves its share of the nodes.
	SetServing(serving bool)
}

// Informer delivers the events of objects, in order for each object.
type Informer interface {
	AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error
	HasSynced() bool
}

// Watcher records the events of Nodes as transactions.
type Watcher struct {
	config  Config
	stored  *storedEvents
	handler *handler
	handle  toolscache.ResourceEventHandlerRegistration
	outbox  *Outbox
	barrier *barrier.Barrier
	writer  *writer
	catchUp *catchUp
	metrics metrics

	concluding signal.Signal // receives when unchecked nodes may be compared
	recording  atomic.Bool   // whether the start is done
	serving    bool          // the state of the Lease; belongs to the goroutine of RunBarrier
}

// New returns a Watcher. From now on it receives the events of the informer of Nodes.
func New(ctx context.Context, cfg Config) (*Watcher, error) {
	if cfg.Stream == nil {
		cfg.Stream = barrier.Listed()
	}
	w := &Watcher{config: cfg, outbox: &Outbox{}, metrics: newMetrics(), concluding: signal.New()}
	w.stored = &storedEvents{cfg.Stored, cfg.History, cfg.MachineBound, cfg.Stream.Delivered}
	w.barrier = barrier.New(barrier.Config{
		Name: cfg.Name, Members: cfg.Members, Lease: cfg.Lease, Stream: cfg.Stream, Silence: cfg.Silence, Held: w.outbox.Held,
	})
	g := &turn{barrier: w.barrier, ring: cfg.Ring, stored: w.stored}
	w.writer = newWriter(w.outbox, g, cfg.History, w.barrier.Stored)
	transactions := &queue.Queue{Client: cfg.Client, Namespace: cfg.TransactionNamespace}
	w.outbox.Stored, w.outbox.Turn = w.stored, g
	w.outbox.Store = &store{
		queue: transactions, nodes: &nodes.Nodes{Client: cfg.Client}, history: cfg.History, isSetBack: cfg.IsSetBack, events: cfg.Events, metrics: &w.metrics,
		allowed: w.writer.mayWrite, storedByOthers: g.storedByOthers, stored: w.writer.succeeded, found: w.writer.found,
	}
	observer := Observer{RecordUpdates: cfg.RecordUpdates, MachineBound: cfg.MachineBound}
	w.catchUp = &catchUp{observer, transactions, &records.Records{Client: cfg.Client, Namespace: cfg.MetadataNamespace}}
	w.handler = &handler{
		log: logf.FromContext(ctx), observer: observer, stream: cfg.Stream, outbox: w.outbox, history: cfg.History, events: cfg.Events,
		loop: &w.writer.loop, added: w.writer.work.Add, onUnchecked: w.conclude,
		passed: func(node string, list int) bool { return w.barrier.Passed(node, list, false) },
	}
	g.compared = w.handler.compared
	if err := w.register(cfg.Metrics, cfg.History); err != nil {
		return nil, err
	}
	var err error
	if w.handle, err = cfg.Nodes.AddEventHandler(w.handler); err != nil {
		return nil, fmt.Errorf("watching nodes: %w", err)
	}
	return w, nil
}

// RunBarrier exchanges questions and answers with the other watchers until ctx is done. It must be
// called once, before the informer of Nodes runs, and must outlive Run.
func (w *Watcher) RunBarrier(ctx context.Context) error {
	w.barrier.Run(ctx, w.stepped)
	return nil
}

// Run records until ctx is cancelled. It then writes the events that it has already seen, for three
// seconds at most, and returns. It must be called once.
func (w *Watcher) Run(ctx context.Context) error {
	defer func() { _ = w.config.Nodes.RemoveEventHandler(w.handle) }() // the informer ends with the process
	if stored := w.config.StoredInformer; stored != nil {
		heard, err := stored.AddEventHandler(w.config.Stored.Handler(w.writer.changed, w.writer.freed))
		if err != nil {
			return fmt.Errorf("watching transactions and records: %w", err)
		}
		defer func() { _ = stored.RemoveEventHandler(heard) }() // as above
	}
	select {
	case <-ctx.Done():
		return nil // shut down before any event was seen
	case <-w.handle.HasSyncedChecker().Done():
	}
	w.start(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { w.checkNodes(ctx) })
	w.writer.Run(ctx)
	wg.Wait()
	return nil
}

// Ready is a readiness check: it returns an error until the watcher has compared the nodes with
// their records. From then on, events are recorded at once.
func (w *Watcher) Ready(*http.Request) error {
	if !w.recording.Load() {
		return errors.New("the nodes have not been compared with their records yet")
	}
	return nil
}

// Live is a liveness check: it returns an error if a writer or the event handler hangs. An
// unavailable API server is no error.
func (w *Watcher) Live(r *http.Request) error { return w.writer.loop.Live(r) }

// stepped is called after each step of the barrier.
func (w *Watcher) stepped(s barrier.Step) {
	w.serve()
	if s.Passed || s.Asked {
		w.writer.retryAll()
	}
	if s.Passed {
		w.conclude()
	}
}

// conclude triggers the comparison of unchecked nodes.
func (w *Watcher) conclude() { w.concluding.Send() }

// checkNodes compares nodes with their records after a gap, and those of the first list that another
// watcher held back at the start, until ctx is cancelled.
func (w *Watcher) checkNodes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.concluding:
		}
		if w.compareInitial(ctx) != nil {
			return // only ctx ends the attempts
		}
		listed := w.handler.uncheckedNodes()
		found, err := w.compare(ctx, listed)
		if err != nil {
			return // as above
		}
		for name, d := range listed {
			w.handler.resolve(d, found[name])
		}
	}
}

// compareInitial compares the nodes of the first list with their records, except those that another
// watcher holds back.
func (w *Watcher) compareInitial(ctx context.Context) error {
	initial := w.handler.initialNodes()
	found, err := w.compare(ctx, initial)
	if err != nil {
		return err
	}
	changed := 0
	for name := range initial {
		changed += len(found[name])
		w.handler.resolveInitial(name, found[name])
	}
	if !w.recording.Load() || len(initial) > 0 {
		logf.FromContext(ctx).Info("Compared nodes with their records", "nodes", len(initial), "changed", changed)
	}
	return nil
}

// compare compares nodes with their records. It retries until ctx is cancelled.
func (w *Watcher) compare(ctx context.Context, listed map[string]listedNode) (found map[string][]txn.Transaction, err error) {
	if len(listed) == 0 && w.recording.Load() { // at the start, it shows that the records can be read
		return nil, nil
	}
	err = wait.PollUntilContextCancel(ctx, startRetryPeriod, true, func(ctx context.Context) (bool, error) {
		var err error
		if found, err = w.catchUp.All(ctx, listed); err != nil {
			logf.FromContext(ctx).Error(err, "Failed to compare nodes with their records, retrying")
			return false, nil
		}
		return true, nil
	})
	return found, err //nolint:wrapcheck // the error of ctx
}

// serve claims this watcher's share of the nodes while it records its conclusions, and releases it
// otherwise, so that others record their events at once. Only the barrier calls it, so changes are
// published in order.
func (w *Watcher) serve() {
	serving := w.recording.Load() && w.barrier.MayConclude()
	if w.serving != serving && w.config.Lease != nil {
		w.config.Lease.SetServing(serving)
	}
	w.serving = serving
}

// start waits for the barrier of the first list, compares its nodes with their records and puts the
// resulting events before those that arrived since.
func (w *Watcher) start(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-w.barrier.First():
	}
	if w.compareInitial(ctx) != nil {
		return // only ctx ends the attempts
	}
	w.recording.Store(true)
	w.barrier.WakeUp() // its next step calls serve
}
