package shardlease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/daemon/signal"
)

// Watch follows the Leases that match a selector and derives the states of their shards. It writes
// nothing. Client, Namespace, Selector and Period are required, except that Namespace may be empty.
type Watch struct {
	Client coordinationv1client.LeasesGetter
	// Namespace is the namespace of the Leases. If empty, Leases of all namespaces are watched, and
	// several can have the same name.
	Namespace string
	// Selector is a label selector.
	Selector string
	// Period is the interval between evaluations while no Lease changes: a shard that falls silent
	// causes no event.
	Period time.Duration
	// Since returns the time from which to count the age of a Lease that this process sees for the
	// first time. It must not return a time after now. If nil, it is [StoredSince].
	Since func(l *coordinationv1.Lease, now time.Time) time.Time
	// OrphanAfter is how long a shard must be dead before it is orphaned.
	OrphanAfter time.Duration
	// Duration is the duration of Leases that do not specify one, in whole seconds. If zero, their
	// shards are uncertain at once.
	Duration time.Duration

	start sync.Once
	looks signal.Signal
	// ages are by namespace.
	ages map[string]*Sightings
}

// Seen is a Lease with the state of its shard.
type Seen struct {
	// Lease must not be modified.
	Lease *coordinationv1.Lease
	// Since is when this process first saw the current spec of the Lease, or its inherited age.
	Since time.Time
	State State
}

// Run calls look with all Leases, sorted by name and namespace: once they are listed, after each
// change, after each call of [Watch.Look], and once per period. Calls do not overlap. It returns
// nil when ctx is canceled, and an error if the watch cannot be set up. Run must be called once.
func (w *Watch) Run(ctx context.Context, look func(ctx context.Context, now time.Time, all []Seen)) error {
	w.init()
	informer := toolscache.NewSharedInformer(w.listWatch(), &coordinationv1.Lease{}, 0)
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.Look() }, UpdateFunc: func(any, any) { w.Look() }, DeleteFunc: func(any) { w.Look() },
	})
	if err != nil {
		return fmt.Errorf("watching the Leases %q: %w", w.Selector, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	defer wg.Wait()
	select {
	case <-ctx.Done():
		return nil
	case <-informer.HasSyncedChecker().Done():
		w.Look()
	}
	tick := time.NewTicker(w.Period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-w.looks:
		}
		now := time.Now()
		look(ctx, now, w.seen(informer.GetStore().List(), now))
	}
}

// Look requests an evaluation. It does not wait. It is safe for concurrent use.
func (w *Watch) Look() {
	w.init()
	w.looks.Send()
}

func (w *Watch) init() {
	w.start.Do(func() { w.looks, w.ages = signal.New(), map[string]*Sightings{} })
}

func (w *Watch) listWatch() toolscache.ListerWatcher {
	leases := w.Client.Leases(w.Namespace)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = w.Selector
			return leases.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = w.Selector
			return leases.Watch(ctx, options)
		},
	}
}

// seen records the Leases and returns the states of their shards.
func (w *Watch) seen(stored []any, now time.Time) []Seen {
	all, names := make([]Seen, 0, len(stored)), map[string]map[string]bool{}
	for _, obj := range stored {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			continue // an informer of Leases holds no other objects
		}
		if w.Duration > 0 && l.Spec.LeaseDurationSeconds == nil {
			l = l.DeepCopy()
			l.Spec.LeaseDurationSeconds = new(int32(w.Duration / time.Second)) //nolint:gosec // seconds to minutes
		}
		if names[l.Namespace] == nil {
			names[l.Namespace] = map[string]bool{}
		}
		names[l.Namespace][l.Name] = true
		since := w.see(l, now)
		all = append(all, Seen{Lease: l, Since: since, State: StateOf(l, now.Sub(since), w.OrphanAfter)})
	}
	for namespace, ages := range w.ages {
		ages.Keep(names[namespace])
	}
	slices.SortFunc(all, func(a, b Seen) int {
		return cmp.Or(cmp.Compare(a.Lease.Name, b.Lease.Name), cmp.Compare(a.Lease.Namespace, b.Lease.Namespace))
	})
	return all
}

// see records a sighting of a Lease and returns the time of its last renewal. The first sighting
// takes the age from the cluster; after that only the local clock counts, so a wrong clock cannot
// make a live shard appear dead for longer than one renewal period.
func (w *Watch) see(l *coordinationv1.Lease, now time.Time) time.Time {
	ages := w.ages[l.Namespace]
	if ages == nil {
		ages = &Sightings{}
		w.ages[l.Namespace] = ages
	}
	if ages.Has(l.Name) {
		return ages.See(l, now)
	}
	first := StoredSince
	if w.Since != nil {
		first = w.Since
	}
	return ages.See(l, first(l, now))
}
