package assignment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/internal/handover"
	"nodekeeper.dev/sharding/internal/place"
)

// runResyncs resyncs the ring whenever a resync is due, until the assigner stops.
func (a *assigner) runResyncs() {
	for {
		wait := a.resyncs.next(time.Now(), a.SyncPeriod)
		if wait == 0 {
			a.resync()
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-a.ctx.Done():
			timer.Stop()
			return
		case <-a.resyncs.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// resync reads all objects of the ring and records the objects that must move.
func (a *assigner) resync() {
	begin := time.Now()
	r := newScan(a.resyncs.begin(begin))
	var failed []error
	all := a.tracked()
	slices.SortFunc(all, func(t, other *tracker) int { return cmp.Compare(t.rank(), other.rank()) })
	for _, t := range all {
		failed = append(failed, t.readAll(a.ctx, r))
	}
	err := errors.Join(failed...)
	if a.ctx.Err() != nil {
		return
	}
	if err != nil {
		logf.FromContext(a.ctx).Error(err, "Reading the objects of a ring failed")
	}
	if r.found > 0 {
		logf.FromContext(a.ctx).V(1).Info("Found objects that must move", "objects", r.found)
	}
	a.metrics.resyncs.WithLabelValues(a.name).Observe(time.Since(begin).Seconds())
	a.resyncs.end(r.view, r.found, err, time.Now())
	a.requestReport()
}

// rank returns the position of a resource in a resync: controlled resources precede main resources.
func (t *tracker) rank() int {
	if t.main == nil {
		return 0
	}
	return 1
}

// scan is the state of a resync.
type scan struct {
	view *view
	// found is the number of objects that may have to move.
	found int
	// children are the children that the table places elsewhere, by the UID of their controller.
	// They are misplaced only if they are not at the shard of their controller, which is read later.
	children map[types.UID][]child
}

// child is an object of a controlled resource.
type child struct {
	of *tracker
	m  *metav1.PartialObjectMetadata
}

func newScan(v *view) *scan { return &scan{view: v, children: map[types.UID][]child{}} }

// readAll reads all objects of a resource and records the objects that must move. It keeps no other
// objects.
func (t *tracker) readAll(ctx context.Context, r *scan) error {
	if !r.view.isLabelled(t.resource) {
		return nil
	}
	err := t.api.readAll(ctx, func(m *metav1.PartialObjectMetadata) { t.check(r, m) })
	if err != nil {
		return fmt.Errorf("reading all %s: %w", t.mapping.Resource.GroupResource(), err)
	}
	return nil
}

// check records an object that must move but is not covered by a watch. The watches cover objects
// without a live shard and objects in a hand-over.
func (t *tracker) check(r *scan, m *metav1.PartialObjectMetadata) {
	v, shard := r.view, m.Labels[t.keys.shard]
	switch {
	case !v.selects(t.mapping, m):
		if shard != "" {
			r.add(t, m) // its namespace has left the ring
		}
	case t.main == nil:
		if t.mayBeMisplaced(v, m) {
			owner := metav1.GetControllerOf(m).UID
			r.children[owner] = append(r.children[owner], child{t, t.strip(m)})
		}
	case !v.live[shard] || m.Labels[t.keys.drain] != "":
		t.checkChildren(r, m, false)
	case t.decide(m, t.known(keyFor(m)).lifeOf(m.UID), t.situation(keyFor(m), v)).Action != handover.Keep:
		r.add(t, m)
		t.checkChildren(r, m, false)
	default:
		t.checkChildren(r, m, true)
	}
}

// add records an object that must move.
func (r *scan) add(t *tracker, m *metav1.PartialObjectMetadata) {
	r.found++
	t.addFound(t.strip(m))
}

// mayBeMisplaced reports whether the table places a child elsewhere than it is.
func (t *tracker) mayBeMisplaced(v *view, m *metav1.PartialObjectMetadata) bool {
	shard, ref := m.Labels[t.keys.shard], metav1.GetControllerOf(m)
	main := t.of.mainOf(t.resource, ref)
	if main == nil || shard != "" && !v.live[shard] {
		return false
	}
	owner := place.Controller(main.mapping.GroupVersionKind.GroupKind(), main.isClusterScoped(), m.Namespace, ref)
	belongs := v.table.Of(place.Key(*main.main, m.Labels, owner))
	return shard != belongs.Now && shard != belongs.Next
}

// checkChildren records the children of a main object that are not at its shard. The children of an
// object that moves move before it; the next resync finds the ones that do not.
func (t *tracker) checkChildren(r *scan, m *metav1.PartialObjectMetadata, stays bool) {
	for _, c := range r.children[m.UID] {
		switch {
		case !stays:
			r.found++
			t.of.resyncs.markMoved()
		case c.m.Labels[t.keys.shard] != m.Labels[t.keys.shard]:
			r.add(c.of, c.m) // process reads its controller as well
		}
	}
	delete(r.children, m.UID)
}
