package assignment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/daemon/signal"
	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
	"nodekeeper.dev/sharding/internal/ring"
)

const (
	// reportPeriod is the minimum interval between two reports about a ring.
	reportPeriod = 500 * time.Millisecond
	// stalePeriod is the interval between reports about a ring without changes.
	stalePeriod = 10 * time.Second
	// goneFor is how long a read of a shard's Lease may be used.
	goneFor = 2 * time.Second
)

// assigner assigns and moves the objects of one ring.
type assigner struct {
	*Controller

	name string
	uid  types.UID
	keys keys
	ctx  context.Context //nolint:containedctx // the context of the ring's goroutines
	stop context.CancelFunc

	moves    moves
	leavers  leavers
	children *children
	late     lateWrites
	resyncs  *resyncs
	dirty    signal.Signal

	mu       sync.Mutex
	view     *view
	trackers map[v1alpha1.GroupResource]*tracker
	failing  map[moving]error // objects whose last write failed
	// unresolved are the resources for which it is unknown whether the API server serves them.
	unresolved map[v1alpha1.GroupResource]error

	// settled is when the last writes of a former leader have arrived.
	settled time.Time

	// gone are the results of reading Leases, by shard, outside those of reading namespaces, and fenced
	// those of checking the fence, by the generation of the ring and the shard.
	gone, outside, fenced readings
}

// reading is the result of a live read: whether something holds.
type reading struct {
	at    time.Time
	holds bool
}

// readings are the results of recent live reads, by name. The zero value is ready to use.
type readings struct {
	mu  sync.Mutex
	all map[string]*lastReading
}

// lastReading is the last reading of one name. Its lock is held during a read, so that several
// objects share one read.
type lastReading struct {
	mu sync.Mutex
	reading
}

// read returns the result of a read that is not older than goneFor.
func (r *readings) read(ctx context.Context, name string, now func() time.Time, read func(context.Context) (bool, error)) (reading, error) {
	last := r.last(name, now())
	last.mu.Lock()
	defer last.mu.Unlock()
	if now().Sub(last.at) < goneFor {
		return last.reading, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	at := now()
	holds, err := read(ctx)
	if err != nil {
		return reading{}, err
	}
	last.reading = reading{at, holds}
	return last.reading, nil
}

// last returns the last reading of a name. A new one replaces the old ones of all names.
func (r *readings) last(name string, now time.Time) *lastReading {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.all[name]; last != nil {
		return last
	}
	maps.DeleteFunc(r.all, func(_ string, last *lastReading) bool {
		if !last.mu.TryLock() {
			return false // it is being read
		}
		defer last.mu.Unlock()
		return now.Sub(last.at) >= goneFor
	})
	if r.all == nil {
		r.all = map[string]*lastReading{}
	}
	r.all[name] = &lastReading{}
	return r.all[name]
}

// until returns the deadline for sending a write that relies on the reading. A shard that returns,
// or that gets the objects of a namespace that returns, waits for longer than that before it works
// on objects that have its label. A sharder that was frozen past the deadline must read again.
func (r reading) until() time.Time { return r.at.Add(goneFor + writeTimeout) }

func newAssigner(ctx context.Context, c *Controller, of *v1alpha1.ClusterRing) *assigner {
	a := &assigner{
		Controller: c, name: of.Name, uid: of.UID, keys: keysOf(c.Dialect.PrefixOf(of), of.Name), dirty: signal.New(),
		trackers: map[v1alpha1.GroupResource]*tracker{},
		failing:  map[moving]error{}, unresolved: map[v1alpha1.GroupResource]error{},
	}
	a.settled = c.now().Add(arriveWithin)
	c.metrics.begin(of.Name)
	ctx, a.stop = context.WithCancel(logf.IntoContext(ctx, logf.FromContext(ctx).WithValues("ring", of.Name)))
	a.ctx = ctx
	a.children, a.resyncs = newChildren(a), newResyncs()
	go a.children.run(ctx)
	go a.report()
	go a.runResyncs()
	return a
}

// setView updates the view of the ring. It returns the resources that the API server does not
// serve.
func (a *assigner) setView(v *view) (missing []string, err error) {
	resolved := a.resolve(v)
	a.mu.Lock()
	former, followed := a.view, len(a.trackers)
	a.view = v
	a.leavers.setView(v)
	missing, err = a.track(v, resolved)
	all := a.all()
	a.mu.Unlock()
	a.follow(all, former, v, former != nil && len(all) > followed)
	return missing, err
}

// follow makes all trackers follow a view that replaces a former one, which is nil for the first
// view. The argument added is set if there are more trackers than before.
func (a *assigner) follow(all []*tracker, former, v *view, added bool) {
	if former != nil && v.decidesLike(former) && !added {
		return
	}
	for _, t := range all {
		t.retarget(v)
	}
	a.resyncs.setView(former, v, added)
	a.requestReport()
}

// resolution is the mapping of a resource, or the error from looking it up.
type resolution struct {
	mapping *meta.RESTMapping
	err     error
}

// resolve looks up the resources of a view. It can send requests, so the caller must not hold the
// lock.
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

// track starts trackers for new resources of a view and stops the trackers of removed ones. The
// caller must hold the lock. A resource that is not served or fails does not delay other resources.
func (a *assigner) track(v *view, resolved map[v1alpha1.GroupResource]resolution) (missing []string, err error) {
	var failed []error
	wanted := map[v1alpha1.GroupResource]bool{}
	add := func(resource v1alpha1.GroupResource, main *v1alpha1.Resource) {
		if wanted[resource] {
			return // several main resources can control the same resource
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

// drop stops the tracker of a resource. The caller must hold the lock.
func (a *assigner) drop(resource v1alpha1.GroupResource) {
	t := a.trackers[resource]
	if t == nil {
		return
	}
	t.stop()
	a.moves.forget(t)
	maps.DeleteFunc(a.failing, func(o moving, _ error) bool { return o.of == t })
	delete(a.trackers, resource)
}

// all returns the trackers. The caller must hold the lock.
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

// mainOf returns the tracker of the main resource of an owner reference, or nil if that resource
// does not control the other one in this ring.
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

// controlledBy returns the trackers of the resources that a main resource controls. It returns an
// error if it is unknown whether the API server serves one of them; a resource that is not served
// has no objects.
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

// isGone determines, by a live read, whether a shard does not hold its Lease. The view may lack
// shards that have joined recently.
func (a *assigner) isGone(ctx context.Context, v *view, shard string) (reading, error) {
	return a.gone.read(ctx, shard, a.now, func(ctx context.Context) (bool, error) {
		holds, err := a.Dialect.Holds(ctx, a.Leases, v.ring, shard)
		return !holds, err //nolint:wrapcheck // the error needs no context
	})
}

// isFenced determines, by a dry run, whether the API server applies the fence of the ring.
func (a *assigner) isFenced(ctx context.Context, v *view, shard string) (reading, error) {
	return a.fenced.read(ctx, strconv.FormatInt(v.ring.Generation, 10)+"/"+shard, a.now, func(ctx context.Context) (bool, error) {
		return a.Fenced(ctx, v.ring, shard)
	})
}

// isOutside determines, by a live read, whether a namespace does not belong to the ring.
func (a *assigner) isOutside(ctx context.Context, v *view, namespace string) (reading, error) {
	return a.outside.read(ctx, fmt.Sprintf("%d/%s", v.ring.Generation, namespace), a.now, func(ctx context.Context) (bool, error) {
		now, err := place.SelectionOf(v.ring, a.Namespace, func(selector labels.Selector) (names []string, err error) {
			options := metav1.ListOptions{LabelSelector: selector.String(), FieldSelector: "metadata.name=" + namespace}
			list, err := a.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, options)
			if err != nil {
				return nil, err //nolint:wrapcheck // SelectionOf adds the context
			}
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
			return names, nil
		})
		return !now.Has(namespace), err //nolint:wrapcheck // the error needs no context
	})
}

// handleError records an error from processing an object, except for lost races.
func (a *assigner) handleError(ctx context.Context, t *tracker, key types.NamespacedName, err error) {
	if !errors.Is(err, errConflict) {
		a.recordFailure(ctx, t, key, err)
	}
}

// recordFailure records that processing an object has failed.
func (a *assigner) recordFailure(ctx context.Context, t *tracker, key types.NamespacedName, err error) {
	if ctx.Err() != nil || t.closed.Load() {
		return
	}
	a.mu.Lock()
	a.failing[moving{t, key}] = err
	a.mu.Unlock()
	a.requestReport()
	logf.FromContext(ctx).Error(err, "Assigning an object failed", "resource", t.mapping.Resource.String(), "object", key)
}

// clearFailure records that an object was processed successfully.
func (a *assigner) clearFailure(t *tracker, key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failing[moving{t, key}] != nil {
		delete(a.failing, moving{t, key})
		a.requestReport()
	}
}

// settledFor returns when all writes to the children of a main object that were sent before have
// arrived.
func (a *assigner) settledFor(main types.UID, now time.Time) time.Time {
	if settled := a.late.settled(main, now); settled.After(a.settled) {
		return settled
	}
	return a.settled
}

func (a *assigner) event(kind, reason, format string, args ...any) {
	a.Recorder.Eventf(a.current().ring, nil, kind, reason, "Assign", format, args...)
}

// requestReport triggers a report about the ring.
func (a *assigner) requestReport() { a.dirty.Send() }

// report updates the report about the ring after changes, at a limited rate.
func (a *assigner) report() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.dirty:
		case <-time.After(stalePeriod): // the age of the oldest drain grows
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
	a.late.forget(a.now())
	epoch := a.resyncs.currentEpoch()
	state := a.state(v)
	a.resyncs.observe(state, epoch, time.Now())
	balanced, isBalanced := a.resyncs.balanced(state)
	a.metrics.unassigned.WithLabelValues(a.name).Set(float64(state.unassigned))
	a.metrics.failing.WithLabelValues(a.name).Set(float64(state.failing))
	a.metrics.oldest.WithLabelValues(a.name).Set(state.oldest.Seconds())
	a.metrics.late.WithLabelValues(a.name).Set(float64(state.late))
	if state.synced {
		a.reportLeft()
	}
	a.Reports.Change(a.name, func(r *ring.Report) {
		r.Moving, r.Unassigned = int32(state.moving), int32(state.unassigned) //nolint:gosec // far below the limit
		r.Balanced = balanced
		r.Set(conditionBalanced(v.ring.Generation, state, isBalanced))
	})
}

// state counts the objects of a ring that are not at rest.
type state struct {
	unassigned, moving, found, late, failing int
	// failure is the error of one of the failing objects.
	failure string
	oldest  time.Duration
	synced  bool
}

// isQuiet reports whether no object moves or waits for an assignment.
func (s state) isQuiet() bool { return s.synced && s.unassigned+s.moving+s.found == 0 }

func (a *assigner) state(v *view) state {
	a.mu.Lock()
	s := state{moving: a.moves.count(), failing: len(a.failing), failure: firstFailure(a.failing), synced: true}
	a.mu.Unlock()
	for _, t := range a.tracked() {
		unassigned, found := t.pending(v)
		s.unassigned += unassigned
		s.found += found
		late, oldest := t.drainedLongest()
		s.late += late
		s.oldest = max(s.oldest, oldest)
		s.synced = s.synced && t.isSynced()
	}
	return s
}

// maxFailure is the maximum length of an error in a condition or an event. Events can have 1 KiB.
const maxFailure = 600

// firstFailure returns the error of the first failing object in the order of their names, so that
// the text changes only if the first object does.
func firstFailure(failing map[moving]error) string {
	var first moving
	for o := range failing {
		if first.of == nil || cmp.Or(cmp.Compare(o.of.resource.Resource, first.of.resource.Resource), cmp.Compare(o.key.String(), first.key.String())) < 0 {
			first = o
		}
	}
	if first.of == nil {
		return ""
	}
	text := failing[first].Error()
	return strings.ToValidUTF8(text[:min(len(text), maxFailure)], "")
}
