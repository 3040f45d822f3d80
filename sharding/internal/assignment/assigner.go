package assignment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
	"nodekeeper.dev/sharding/internal/ring"
)

const (
	// reportPeriod is the time between two reports about a ring whose objects move.
	reportPeriod = 500 * time.Millisecond
	// stalePeriod is the time between two reports about a ring of which nothing is heard.
	stalePeriod = 10 * time.Second
	// goneFor is for how long a read that shows whether a shard is gone counts.
	goneFor = 2 * time.Second
)

// assigner assigns and moves the objects of one ring.
type assigner struct {
	*Controller

	name string
	uid  types.UID
	keys keys
	ctx  context.Context //nolint:containedctx // that of the goroutines of the ring
	stop context.CancelFunc

	moves    moves
	children *children
	passes   *passes
	dirty    chan struct{}

	mu       sync.Mutex
	view     *view
	trackers map[v1alpha1.GroupResource]*tracker
	failing  map[moving]bool // objects that could not be written
	// unresolved are the resources of which it is not known whether the API server serves them.
	unresolved map[v1alpha1.GroupResource]error
	// seenLive are the shards that this process has seen live.
	seenLive map[string]bool

	goneMu sync.Mutex
	gone   map[string]reading
}

// reading is what a read of the Lease of a shard showed.
type reading struct {
	at     time.Time
	isGone bool
}

// until is when a write that relies on the reading must have been sent, or cut off: a shard that returns
// waits for longer before it works on objects that have its label. A sharder that was frozen since must
// read again.
func (r reading) until() time.Time { return r.at.Add(goneFor + writeTimeout) }

func newAssigner(ctx context.Context, c *Controller, of *v1alpha1.ClusterRing) *assigner {
	a := &assigner{
		Controller: c, name: of.Name, uid: of.UID, keys: keysOf(c.Dialect.PrefixOf(of), of.Name), dirty: make(chan struct{}, 1),
		trackers: map[v1alpha1.GroupResource]*tracker{},
		failing:  map[moving]bool{}, gone: map[string]reading{}, unresolved: map[v1alpha1.GroupResource]error{}, seenLive: map[string]bool{},
	}
	c.metrics.begin(of.Name)
	ctx, a.stop = context.WithCancel(logf.IntoContext(ctx, logf.FromContext(ctx).WithValues("ring", of.Name)))
	a.ctx = ctx
	a.children, a.passes = newChildren(a), newPasses()
	go a.children.run(ctx)
	go a.report()
	go a.pass()
	return a
}

// show makes the assigner act by another view. It returns the resources that the API server does not
// serve.
func (a *assigner) show(v *view) (missing []string, err error) {
	resolved := a.resolve(v)
	a.mu.Lock()
	former, followed := a.view, len(a.trackers)
	a.view = v
	maps.Copy(a.seenLive, v.live)
	missing, err = a.track(v, resolved)
	all := a.all()
	a.mu.Unlock()
	hasMore := former != nil && len(all) > followed
	if former != nil && v.decidesLike(former) && !hasMore {
		return missing, err
	}
	for _, t := range all {
		t.aim(v)
	}
	a.passes.see(former, v, hasMore)
	a.touch()
	return missing, err
}

// resolution is what the API server serves as a resource, or why that is not known.
type resolution struct {
	mapping *meta.RESTMapping
	err     error
}

// resolve finds the resources of a view. It can ask the API server, so the caller must not hold the lock.
func (a *assigner) resolve(v *view) map[v1alpha1.GroupResource]resolution {
	all := map[v1alpha1.GroupResource]resolution{}
	for _, resource := range ring.Resources(&v.ring.Spec) {
		var r resolution
		var kind schema.GroupVersionKind
		kind, r.err = a.Mapper.KindFor(schema.GroupVersionResource{Group: resource.Group, Resource: resource.Resource})
		if r.err == nil {
			r.mapping, r.err = a.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
		all[resource] = r
	}
	return all
}

// track begins to follow the resources of a view, and ends to follow others. The caller holds the lock.
// What is not served or fails delays no other resource.
func (a *assigner) track(v *view, resolved map[v1alpha1.GroupResource]resolution) (missing []string, err error) {
	var failed []error
	wanted := map[v1alpha1.GroupResource]bool{}
	add := func(resource v1alpha1.GroupResource, main *v1alpha1.Resource) {
		if wanted[resource] {
			return // several main resources can control it
		}
		wanted[resource] = true
		delete(a.unresolved, resource)
		mapping, err := resolved[resource].mapping, resolved[resource].err
		if t := a.trackers[resource]; t != nil && t.isFor(main) && (err != nil || t.mapping.Resource == mapping.Resource) {
			return
		}
		name := schema.GroupResource{Group: resource.Group, Resource: resource.Resource}.String()
		if meta.IsNoMatchError(err) {
			missing = append(missing, name)
			return
		}
		if err != nil {
			a.unresolved[resource] = err
			failed = append(failed, fmt.Errorf("finding %s: %w", name, err))
			return
		}
		a.drop(resource)
		t := newTracker(a, resource, main, mapping)
		t.ctx, t.stop = context.WithCancel(a.ctx)
		a.trackers[resource] = t
		go t.run()
	}
	for i := range v.ring.Spec.Resources {
		main := &v.ring.Spec.Resources[i]
		add(main.GroupResource, main)
		for _, controlled := range main.ControlledResources {
			add(controlled, nil)
		}
	}
	for resource := range a.trackers {
		if !wanted[resource] {
			a.drop(resource)
		}
	}
	return missing, errors.Join(failed...)
}

// drop ends to follow a resource. The caller holds the lock.
func (a *assigner) drop(resource v1alpha1.GroupResource) {
	t := a.trackers[resource]
	if t == nil {
		return
	}
	t.stop()
	a.moves.forget(t)
	maps.DeleteFunc(a.failing, func(o moving, _ bool) bool { return o.of == t })
	delete(a.trackers, resource)
}

// all returns the trackers. The caller holds the lock.
func (a *assigner) all() []*tracker {
	var all []*tracker
	for _, t := range a.trackers {
		all = append(all, t)
	}
	return all
}

func (a *assigner) tracked() []*tracker {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all()
}

func (a *assigner) current() *view {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.view
}

// mainOf returns the tracker of the main resource that an owner reference points to, nil if the ring does not
// control the other resource through it.
func (a *assigner) mainOf(controlled v1alpha1.GroupResource, ref *metav1.OwnerReference) *tracker {
	if ref == nil {
		return nil
	}
	for _, t := range a.tracked() {
		if t.main != nil && place.Controls(*t.main, t.mapping.GroupVersionKind.GroupKind(), controlled, ref) {
			return t
		}
	}
	return nil
}

// controlledBy returns the trackers of what the objects of a main resource control. It returns an error if it
// is not known whether the API server serves one of these; one that is not served has no objects.
func (a *assigner) controlledBy(main *tracker) (all []*tracker, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, resource := range main.main.ControlledResources {
		if t := a.trackers[resource]; t != nil {
			all = append(all, t)
		} else if err := a.unresolved[resource]; err != nil {
			return nil, fmt.Errorf("finding the children in %s: %w", resource.Resource, err)
		}
	}
	return all, nil
}

// hasSeenLive reports whether this process has seen a shard live: then nobody else has moved what it had.
func (a *assigner) hasSeenLive(shard string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seenLive[shard]
}

// isGone returns whether a shard does not hold its Lease, by a read from the API server: the view may not
// have those that have joined since.
func (a *assigner) isGone(ctx context.Context, v *view, shard string) (reading, error) {
	a.goneMu.Lock()
	defer a.goneMu.Unlock()
	if before, ok := a.gone[shard]; ok && time.Since(before.at) < goneFor {
		return before, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	at := time.Now()
	holds, err := a.Dialect.Holds(ctx, a.Leases, v.ring, shard)
	if err != nil {
		return reading{}, err
	}
	maps.DeleteFunc(a.gone, func(_ string, r reading) bool { return time.Since(r.at) >= goneFor })
	a.gone[shard] = reading{at: at, isGone: !holds}
	return a.gone[shard], nil
}

// failed notes that something could not be done about an object.
func (a *assigner) failed(ctx context.Context, t *tracker, key types.NamespacedName, err error) {
	if !errors.Is(err, errLost) {
		a.fails(ctx, t, key, err)
	}
}

// fails is failed for what is no lost race.
func (a *assigner) fails(ctx context.Context, t *tracker, key types.NamespacedName, err error) {
	if ctx.Err() != nil || t.isClosed.Load() {
		return
	}
	a.mu.Lock()
	a.failing[moving{t, key}] = true
	a.mu.Unlock()
	a.touch()
	logf.FromContext(ctx).Error(err, "Assigning an object failed", "resource", t.mapping.Resource.String(), "object", key)
}

// succeeded notes that nothing is left to do about an object for now.
func (a *assigner) succeeded(t *tracker, key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failing[moving{t, key}] {
		delete(a.failing, moving{t, key})
		a.touch()
	}
}

func (a *assigner) event(kind, reason, format string, args ...any) {
	a.Recorder.Eventf(a.current().ring, nil, kind, reason, "Assign", format, args...)
}

// touch makes the ring be reported about soon.
func (a *assigner) touch() {
	select {
	case a.dirty <- struct{}{}:
	default:
	}
}

// report reports about the ring when something has changed, but not all the time.
func (a *assigner) report() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.dirty:
		case <-time.After(stalePeriod): // what moves gets older
		}
		a.reportOnce()
		select {
		case <-a.ctx.Done():
			return
		case <-time.After(reportPeriod):
		}
	}
}

func (a *assigner) reportOnce() {
	v := a.current()
	if v == nil {
		return
	}
	epoch := a.passes.now()
	state := a.state(v)
	a.passes.learn(state, epoch, time.Now())
	balanced, isBalanced := a.passes.balanced(state)
	a.metrics.unassigned.WithLabelValues(a.name).Set(float64(state.unassigned))
	a.metrics.oldest.WithLabelValues(a.name).Set(state.oldest.Seconds())
	a.Reports.Change(a.name, func(r *ring.Report) {
		r.Moving, r.Unassigned = int32(state.moving), int32(state.unassigned) //nolint:gosec // far less
		r.Balanced = balanced
		r.Set(conditionBalanced(v.ring.Generation, state, isBalanced))
	})
}

// state is what of a ring is not at rest.
type state struct {
	unassigned, moving, found, late, failing int
	oldest                                   time.Duration
	isSynced                                 bool
}

// isQuiet reports whether nothing waits for an assignment or moves.
func (s state) isQuiet() bool { return s.isSynced && s.unassigned+s.moving+s.found == 0 }

func (a *assigner) state(v *view) state {
	a.mu.Lock()
	s := state{moving: a.moves.count(), failing: len(a.failing), isSynced: true}
	a.mu.Unlock()
	for _, t := range a.tracked() {
		unassigned, found := t.pending(v)
		s.unassigned += unassigned
		s.found += found
		late, oldest := t.drainedLongest()
		s.late += late
		s.oldest = max(s.oldest, oldest)
		s.isSynced = s.isSynced && t.isSynced()
	}
	return s
}
