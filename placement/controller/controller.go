package controller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/daemon/signal"
	"nodekeeper.dev/placement/contract"
)

const (
	// passPeriod is the least time between the beginnings of two passes.
	passPeriod = 50 * time.Millisecond
	// requestTimeout bounds a request.
	requestTimeout = 10 * time.Second
	// parallel is how many requests a pass sends at a time.
	parallel = 32
)

// Controller runs one loop per pool. It must be the only one that is a leader, or else two may move
// work to and fro; but no two pods work on one virtual replica even then.
type Controller struct {
	loops    []*loop
	detector *rewind.Detector
	metrics  *metrics
	events   corev1client.EventsGetter
}

// New returns a controller. It does no I/O.
func New(cfg *rest.Config, pools []Pool) (*Controller, error) {
	c, err := newClients(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	controller := &Controller{detector: rewind.New(), metrics: newMetrics(), events: c.events}
	names := poolLabels(pools)
	for i := range pools {
		l := newLoop(c, pools[i], controller.detector)
		l.label, l.metrics = names[i], controller.metrics
		controller.loops = append(controller.loops, l)
	}
	return controller, nil
}

// Run runs all loops until ctx ends. It returns [rewind.ErrRewound] if the cluster was
// rewound.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.detector.Run(ctx) })
	events := newReporter(ctx, c.events)
	for _, l := range c.loops {
		l.events = events
		group.Go(func() error {
			l.run(ctx)
			return nil
		})
	}
	return group.Wait()
}

// Synced reports whether all loops have seen everything that was there when they started.
func (c *Controller) Synced() bool {
	for _, l := range c.loops {
		if !l.ready.Load() {
			return false
		}
	}
	return true
}

// clients are what the loops read and write with.
type clients struct {
	leases     coordinationv1client.LeasesGetter
	configMaps corev1client.ConfigMapsGetter
	events     corev1client.EventsGetter
	// statefulSets is used only by pools that name one.
	statefulSets appsv1client.StatefulSetsGetter
	dynamic      dynamic.Interface
	discovery    discovery.DiscoveryInterface
}

func newClients(cfg *rest.Config) (c *clients, err error) {
	c = &clients{}
	if c.leases, err = coordinationv1client.NewForConfig(cfg); err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	c.configMaps, c.events = core, core
	if c.statefulSets, err = appsv1client.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, err
	}
	c.discovery, err = discovery.NewDiscoveryClientForConfig(cfg)
	return c, err
}

// loop is the loop of one pool. Its fields belong to the goroutine of run, except for the stores.
type loop struct {
	*clients
	Pool

	dirty    signal.Signal
	detector *rewind.Detector
	ready    atomic.Bool

	kinds     []*kindState // those that are served, with synced stores
	served    served
	leaseRows *store[*member]
	contracts *store[*stored]
	workloads *store[*workload] // the StatefulSet of the pool

	label   string // of the pool in metrics
	metrics *metrics
	gauges  gauges
	events  *reporter

	memory
}

func newLoop(c *clients, p Pool, d *rewind.Detector) *loop {
	return &loop{
		clients: c, Pool: p, dirty: signal.New(), detector: d, label: p.Name, metrics: newMetrics(), events: &reporter{}, memory: newMemory(),
	}
}

// run runs the loop until ctx ends.
func (l *loop) run(ctx context.Context) {
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("pool", l.Name, "namespace", l.Namespace))
	reflectors := l.reflectors()
	var group sync.WaitGroup
	for _, r := range reflectors {
		group.Go(func() { r.RunWithContext(ctx) })
	}
	for _, k := range l.Kinds {
		group.Go(func() { l.serve(ctx, k) })
	}
	l.work(ctx)
	group.Wait()
}

// work makes a pass whenever something has changed or is due, until ctx ends.
func (l *loop) work(ctx context.Context) {
	timer := time.NewTimer(retryPeriod)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.dirty:
		case <-timer.C:
		}
		if !l.isSynced() {
			timer.Reset(retryPeriod)
			continue
		}
		began := time.Now()
		due := l.pass(ctx)
		if !l.ready.Swap(true) {
			logr.FromContextOrDiscard(ctx).Info("Pool is synced")
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(began.Add(passPeriod))):
		}
		if due > 0 {
			timer.Reset(max(due-time.Since(began), 0))
		}
	}
}

// isSynced reports whether passes are possible. The first one waits for all kinds that are served.
func (l *loop) isSynced() bool {
	all := l.useKinds()
	return l.leaseRows.synced() && l.contracts.synced() && (l.StatefulSet == "" || l.workloads.synced()) && (all || l.ready.Load())
}

// reflectors returns what fills the stores of Leases and contracts.
func (l *loop) reflectors() []*cache.Reflector {
	l.leaseRows = newStore(l, parseMember, isMoreThanRenewal)
	l.contracts = newStore(l, parseContract, nil)
	l.workloads = newStore(l, parseWorkload, isMoreThanStatus)
	ours := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{contract.PoolLabel: l.Name}).String()}
	leases, configMaps := l.leases.Leases(l.Namespace), l.configMaps.ConfigMaps(l.Namespace)
	all := []*cache.Reflector{
		l.reflector(&coordinationv1.Lease{}, l.leaseRows, ours, listOf(leases.List), leases.Watch),
		l.reflector(&corev1.ConfigMap{}, l.contracts, ours, listOf(configMaps.List), configMaps.Watch),
	}
	if l.StatefulSet != "" {
		sets, one := l.statefulSets.StatefulSets(l.Namespace), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", l.StatefulSet).String()}
		all = append(all, l.reflector(&appsv1.StatefulSet{}, l.workloads, one, listOf(sets.List), sets.Watch))
	}
	return all
}

func newStore[P any](l *loop, parse func(metav1.Object) P, matters func(before, after *version[P]) bool) *store[P] {
	return &store[P]{parse: parse, matters: matters, changed: l.dirty.Send, compare: l.detector.Compare, objects: map[string]*version[P]{}, deleted: map[types.UID]bool{}}
}

// listOf makes the list function of any client one of a reflector.
func listOf[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) cache.ListWithContextFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// reflector returns what fills a store with selected objects. It ends the process if the cluster
// was rewound.
func (l *loop) reflector(expected runtime.Object, to cache.ReflectorStore, selected metav1.ListOptions, list cache.ListWithContextFunc, watchFrom func(context.Context, metav1.ListOptions) (watch.Interface, error)) *cache.Reflector {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
			return watchFrom(ctx, o)
		},
	}
	return cache.NewReflectorWithOptions(l.detector.Requests(lw), expected, to, cache.ReflectorOptions{})
}
