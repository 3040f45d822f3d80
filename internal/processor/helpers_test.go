package processor_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/processor"
	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/processor/job"
	"nodekeeper.dev/internal/processor/protection"
	"nodekeeper.dev/internal/processor/quarantine"
	"nodekeeper.dev/internal/processor/telemetry"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/controlplane"
)

type set = map[string]string

const (
	// patience bounds the wait for an expected state. It is long, so that tests pass on a busy
	// machine.
	patience = 3 * time.Minute
	tick     = 50 * time.Millisecond

	zone = "topology.kubernetes.io/zone" // a live label
)

// cluster is a test's part of the API server: its namespaces, and nodes with unique names. Its
// client is not subject to faults.
type cluster struct {
	client.WithWatch
	transactions, records string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c, err := client.NewWithWatch(api.Config, client.Options{})
	require.NoError(t, err)
	return &cluster{WithWatch: c, transactions: controlplane.Namespace(t, c), records: controlplane.Namespace(t, c)}
}

// setup describes how a test's processor differs from a real one. The zero value means that it does
// not.
type setup struct {
	faults []faults.Fault
	cache  func(client.Reader) client.Reader // replaces its cache
	locks  client.Client                     // the client of its locks
	mode   labels.Mode
	// history is the detector that its informers report to.
	history *rewind.Detector
	// metrics registers its metrics.
	metrics prometheus.Registerer
	// rank is its rank on the ring for every node.
	rank int
	// ring replaces that ring.
	ring processor.Ring
	// lease is its Lease.
	lease processor.Lease
	// ghosts are transactions in its index that are not in the queue.
	ghosts []*corev1.ConfigMap
	// saveDelay is the batch period of saves.
	saveDelay time.Duration
	// workers is the number of nodes that it processes concurrently; 0 means sixteen.
	workers int
	// protects reports whether it protects nodes.
	protects bool
}

// process runs a processor like the real program, until stop is called or the test ends.
func (c *cluster) process(t *testing.T, s setup) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	mgr, err := service.New(ctx, service.Config{
		Program: "processor",
		Options: &service.Options{
			Options:              daemon.Options{Kubeconfig: api.Kubeconfig, MetricsBindAddress: "0", HealthProbeBindAddress: "0"},
			TransactionNamespace: c.transactions, MetadataNamespace: c.records, MembershipNamespace: c.records,
		},
		Cache: cache.Options{
			ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{c.records: {}}},
				&corev1.Node{}:      {Transform: service.ViewNodes(nodeview.View{})},
			},
			DefaultTransform: cache.TransformStripManagedFields(),
		},
	})
	require.NoError(t, err)
	index := c.register(t, mgr, s)
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, daemon.Run(ctx, mgr)) })
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	require.NoError(t, index.WaitForSync(t.Context()))
	return stop
}

// register adds the parts of a processor to a manager, and returns the index.
func (c *cluster) register(t *testing.T, mgr manager.Manager, s setup) *queue.Index {
	t.Helper()
	config := rest.CopyConfig(api.Config)
	config.UserAgent = "nodekeeper-processor/test" // shows on a Node what a restore has set
	own, err := client.NewWithWatch(config, client.Options{})
	require.NoError(t, err)
	api := faults.Client(own, s.faults...)
	registry := cmp.Or[prometheus.Registerer](s.metrics, prometheus.NewRegistry())
	cached := client.Reader(mgr.GetCache())
	if s.cache != nil {
		cached = s.cache(cached)
	}
	observer, err := telemetry.NewObserver(mgr.GetEventRecorder("nodekeeper-processor"), registry)
	require.NoError(t, err)
	nodeDoor, saved := &nodes.Nodes{Client: api}, &records.Records{Client: api, Cache: cached, Namespace: c.records}
	cfg := processor.Config{
		Applier:   &apply.Applier{Nodes: nodeDoor, Records: saved, Policy: policy(t, s.mode), Observer: observer},
		Records:   saved,
		Queue:     &queue.Queue{Client: api, Namespace: c.transactions},
		Index:     queue.NewIndex(),
		Locks:     nodelock.New(cmp.Or[client.Client](s.locks, api), c.transactions, "processor-"+rand.String(6)),
		Observer:  observer,
		Ring:      cmp.Or[processor.Ring](s.ring, newSpot(s.rank)),
		Lease:     s.lease,
		SaveDelay: s.saveDelay,
		Rewind:    s.history,
		Workers:   cmp.Or(s.workers, 16),
	}
	require.NoError(t, job.RunIndex(mgr, cfg.Index, c.transactions, nil))
	require.NoError(t, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		err := cfg.Index.WaitForSync(ctx)
		for _, ghost := range s.ghosts {
			err = errors.Join(err, cfg.Index.Add(ghost))
		}
		return err
	})))
	p, err := processor.New(cfg, registry)
	require.NoError(t, err)
	require.NoError(t, p.Register(mgr))
	require.NoError(t, (&quarantine.Controller{Queue: cfg.Queue, Index: cfg.Index, Observer: observer}).Register(mgr))
	if s.protects {
		all, err := nodes.CacheOf(t.Context(), mgr.GetCache())
		require.NoError(t, err)
		protect := &protection.Controller{
			Nodes: nodeDoor, Records: saved, Queue: cfg.Queue, Index: cfg.Index, Applier: cfg.Applier, Observer: observer, Locks: cfg.Locks,
			Cache: all, Rewind: s.history, Workers: cfg.Workers,
		}
		require.NoError(t, protect.Register(mgr, registry))
	}
	return cfg.Index
}

// spot is a ring on which a processor has the same rank for every node.
type spot struct {
	rank    atomic.Int64
	asked   atomic.Int64 // the number of calls of Place
	changes chan struct{}
}

func newSpot(rank int) *spot {
	s := &spot{changes: make(chan struct{}, 1)}
	s.rank.Store(int64(rank))
	return s
}

func (s *spot) Place(string) ring.Place {
	s.asked.Add(1)
	return ring.Place{Rank: int(s.rank.Load())}
}

func (s *spot) RingChanges() <-chan struct{} { return s.changes }

// move changes the rank of the processor.
func (s *spot) move(rank int) {
	s.rank.Store(int64(rank))
	select {
	case s.changes <- struct{}{}:
	default: // a change is already pending
	}
}

func policy(t *testing.T, mode labels.Mode) labels.Policy {
	t.Helper()
	live, err := labels.ParsePatterns(labels.DefaultLive)
	require.NoError(t, err)
	return labels.Policy{Mode: cmp.Or(mode, labels.Replace), Live: live}
}

// name returns a node name that no other test uses.
func (c *cluster) name(name string) string { return name + "-" + c.transactions }

// addNode creates a node, which is deleted when the test ends.
func (c *cluster) addNode(t *testing.T, name string, own set) *corev1.Node {
	t.Helper()
	// The API server omits managedFields of an object that is created without any field.
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own, Annotations: set{"example.com/made-by": "a test"}}}
	require.NoError(t, c.Create(t.Context(), n))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		assert.NoError(t, client.IgnoreNotFound(c.Delete(ctx, n)))
		// The finalizer would block the deletion, as no processor runs any more.
		assert.NoError(t, client.IgnoreNotFound(c.Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
	})
	return n
}

// edit changes a node like a user. It is safe for concurrent use.
func (c *cluster) edit(ctx context.Context, t *testing.T, n *corev1.Node, change func(*corev1.Node)) {
	t.Helper()
	before := n.DeepCopy()
	change(n)
	assert.NoError(t, c.Patch(ctx, n, client.MergeFrom(before)))
}

// deleteNode deletes a node and sets the resourceVersion of n to a revision after the delete. It is
// safe for concurrent use.
func (c *cluster) deleteNode(ctx context.Context, t *testing.T, n *corev1.Node) {
	t.Helper()
	assert.NoError(t, c.Delete(ctx, n.DeepCopy()))
	later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "later-"}}
	assert.NoError(t, c.Create(ctx, later))
	n.ResourceVersion = later.ResourceVersion
}

// node returns the current Node.
func (c *cluster) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Name: name}, n))
	return n
}

// seen returns the transaction that a watcher records for an event.
func seen(typ txn.Type, n *corev1.Node) txn.Transaction {
	own, marker := labels.Split(n.Labels)
	return txn.Transaction{
		Type: typ, Node: n.Name, UID: n.UID, Revision: revision.Of(n.ResourceVersion), Labels: own, Marker: marker,
		ObservedAt: time.Now(), FoundsRecord: typ == txn.Added,
	}
}

// put stores transactions in the queue.
func (c *cluster) put(t *testing.T, all ...txn.Transaction) {
	t.Helper()
	q := &queue.Queue{Client: c, Namespace: c.transactions}
	for _, transaction := range all {
		require.NoError(t, q.Put(t.Context(), transaction))
	}
}

// save stores a record.
func (c *cluster) save(t *testing.T, r record.Record) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), r.ConfigMap(c.records)))
}

// record returns the record of a node, or nil if there is none.
func (c *cluster) record(t *testing.T, node string) *record.Record {
	t.Helper()
	var cm corev1.ConfigMap
	err := c.Get(t.Context(), types.NamespacedName{Namespace: c.records, Name: node}, &cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	r, err := record.Parse(&cm)
	require.NoError(t, err)
	r.SavedAt, r.EndedAt = time.Time{}, time.Time{} // not relevant for decisions
	return r
}

// queued returns the names of the transactions of a node.
func (c *cluster) queued(ctx context.Context, node string) ([]string, error) {
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, client.InNamespace(c.transactions), client.MatchingLabels(txn.NodeLabels(node))); err != nil {
		return nil, fmt.Errorf("listing the queue: %w", err)
	}
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

// waitApplied waits until the queues of the nodes are empty and their locks are released.
func (c *cluster) waitApplied(t *testing.T, names ...string) {
	t.Helper()
	for _, node := range names {
		require.EventuallyWithT(t, func(ct *assert.CollectT) {
			left, err := c.queued(t.Context(), node)
			assert.NoError(ct, err)
			assert.Empty(ct, left)
			err = c.Get(t.Context(), types.NamespacedName{Namespace: c.transactions, Name: node}, &coordinationv1.Lease{})
			assert.True(ct, apierrors.IsNotFound(err), "the lock: %v", err)
		}, patience, tick)
	}
}

// waitEvent waits for an event about an object, and returns its note.
func (c *cluster) waitEvent(t *testing.T, namespace, name, reason string) (note string) {
	t.Helper()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		var list eventsv1.EventList
		assert.NoError(ct, c.List(t.Context(), &list, client.InNamespace(namespace)))
		i := slices.IndexFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == name && e.Reason == reason })
		if assert.GreaterOrEqual(ct, i, 0, "event %s", reason) {
			assert.Equal(ct, corev1.EventTypeWarning, list.Items[i].Type)
			note = list.Items[i].Note
		}
	}, patience, tick)
	return note
}
