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
)

// Watch follows the Leases that a selector selects, and says in which states their shards are. It
// writes nothing. Client, Namespace, Selector and Period are required.
type Watch struct {
	Client coordinationv1client.LeasesGetter
	// Namespace is where the Leases are. Empty: in any namespace, where several can have one name.
	Namespace string
	// Selector is a label selector.
	Selector string
	// Period is the time between two looks while no Lease changes: a shard that is silent causes no
	// event.
	Period time.Duration
	// Since returns the time from which to count how long a Lease was not renewed that was not seen
	// before: it is not after now. Nil: [StoredSince].
	Since func(l *coordinationv1.Lease, now time.Time) time.Time
	// OrphanAfter is for how long a shard must be dead to be orphaned.
	OrphanAfter time.Duration
	// Duration is that of Leases that do not say theirs, in whole seconds. Zero: their shards are
	// uncertain at once.
	Duration time.Duration

	start sync.Once
	looks chan struct{}
	// ages are by namespace.
	ages map[string]*Sightings
}

// Seen is a Lease, since when it was not renewed as this process has seen it, and what follows.
type Seen struct {
	// Lease must not be modified.
	Lease *coordinationv1.Lease
	Since time.Time
	State State
}

// Run calls look with all Leases, by name and namespace, as soon as they are listed, after each change,
// after each call of [Watch.Look], and once in a period, until ctx is cancelled. Calls do not overlap.
// Run must be called once.
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

// Look asks for a look. It does not wait. It is safe for concurrent use.
func (w *Watch) Look() {
	w.init()
	poke(w.looks)
}

func (w *Watch) init() {
	w.start.Do(func() { w.looks, w.ages = make(chan struct{}, 1), map[string]*Sightings{} })
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

// seen notes the Leases and returns what follows from them.
func (w *Watch) seen(stored []any, now time.Time) []Seen {
	all, names := make([]Seen, 0, len(stored)), map[string]map[string]bool{}
	for _, obj := range stored {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			continue // an informer of Leases holds nothing else
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

// see notes a Lease and returns since when it was not renewed. The age of one that was there before
// this process is what the cluster stores; from then on only the own clock counts, so that a clock
// that is off cannot make a live shard look dead for longer than a renewal.
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
