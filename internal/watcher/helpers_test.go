package watcher_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

// The namespaces of the tests without an API server.
const (
	transactions = "transactions"
	records      = "records"
)

// informer is an Informer that a test drives manually, synced from the start. The zero value has no
// nodes.
type informer struct {
	toolscache.ResourceEventHandler // the watcher's, once added
	initial                         []any
}

var _ watcher.Informer = (*informer)(nil)

func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	for _, obj := range i.initial {
		handler.OnAdd(obj, true)
	}
	i.ResourceEventHandler = handler
	return synced{}, nil
}

func (i *informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	i.ResourceEventHandler = toolscache.ResourceEventHandlerFuncs{}
	return nil
}

func (i *informer) HasSynced() bool { return true }

type synced struct{}

func (synced) HasSynced() bool                            { return true }
func (s synced) HasSyncedChecker() toolscache.DoneChecker { return s }
func (synced) Name() string                               { return "nodes" }

func (synced) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// running is a watcher at work in a synctest bubble.
type running struct {
	*informer
	client   client.WithWatch // without faults
	recorder *events.FakeRecorder
	registry *prometheus.Registry
	ready    func(*http.Request) error
	live     func(*http.Request) error
	cancel   context.CancelFunc
	done     chan error
}

// start runs a watcher in an empty cluster. Its client is subject to the faults. It returns when
// the watcher is idle.
func start(t *testing.T, nodes *informer, fault ...faults.Fault) *running {
	t.Helper()
	return startWith(t, faults.Fake().Build(), nodes, fault...)
}

func startWith(t *testing.T, c client.WithWatch, nodes *informer, fault ...faults.Fault) *running {
	t.Helper()
	return startConfigured(t, c, nodes, func(*watcher.Config) {}, fault...)
}

func startConfigured(t *testing.T, c client.WithWatch, nodes *informer, change func(*watcher.Config), fault ...faults.Fault) *running {
	t.Helper()
	r := &running{
		informer: nodes,
		client:   c,
		recorder: events.NewFakeRecorder(100),
		registry: prometheus.NewRegistry(),
		done:     make(chan error, 1),
	}
	cfg := watcher.Config{
		Client: faults.Client(r.client, fault...), Nodes: nodes, Silence: watcher.DefaultSilence, Events: r.recorder, Metrics: r.registry,
		TransactionNamespace: transactions, MetadataNamespace: records, RecordUpdates: true,
	}
	change(&cfg)
	r.run(t, &cfg)
	synctest.Wait()
	return r
}

// run runs the watcher, and its barrier until the watcher has stopped.
func (r *running) run(t *testing.T, cfg *watcher.Config) {
	t.Helper()
	w, err := watcher.New(t.Context(), *cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel, r.ready, r.live = cancel, w.Ready, w.Live
	barrierCtx, end := context.WithCancel(t.Context())
	go func() { _ = w.RunBarrier(barrierCtx) }()
	go func() {
		defer end()
		r.done <- w.Run(ctx)
	}()
}

// stop stops the watcher and returns how long that took.
func (r *running) stop(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	r.cancel()
	require.NoError(t, <-r.done)
	return time.Since(begin)
}

// queued returns the transactions of a node, oldest first.
func queued(t *testing.T, c client.Reader, ns, node string) []txn.Transaction {
	t.Helper()
	var list corev1.ConfigMapList
	require.NoError(t, c.List(t.Context(), &list, client.InNamespace(ns), client.MatchingLabels(txn.NodeLabels(node))))
	var all []txn.Transaction
	for i := range list.Items {
		transaction, err := txn.Parse(&list.Items[i])
		if assert.NoError(t, err) {
			all = append(all, transaction)
		}
	}
	slices.SortFunc(all, func(a, b txn.Transaction) int {
		return cmp.Or(txn.Compare(a, b), cmp.Compare(a.Type, b.Type))
	})
	return all
}

// summary describes transactions briefly.
func summary(all []txn.Transaction) []string {
	texts := []string{}
	for _, transaction := range all {
		texts = append(texts, string(transaction.Type)+" "+string(transaction.UID)+"@"+transaction.Revision.String())
	}
	return texts
}

// errBrokeOrder means that a transaction was written before the previous one was stored.
var errBrokeOrder = errors.New("a transaction was written before the previous one was known to be stored")

// checkOrder returns errBrokeOrder if the log of creates violates the order; want are the names in
// order.
func checkOrder(log *faults.Log, want []string) error {
	known := 0 // how many are known to be stored
	for _, entry := range log.Entries() {
		if i := slices.Index(want, entry.Name); i > known {
			return errBrokeOrder
		}
		isStored := entry.Err == nil || apierrors.IsAlreadyExists(entry.Err)
		if isStored && known < len(want) && entry.Name == want[known] {
			known++
		}
	}
	return nil
}

// metric returns the value of a counter or gauge that has no labels.
func metric(t *testing.T, registry prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue() + family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.Fail(t, "no metric "+name)
	return 0
}
