package assignment

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
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
	v, begin := a.resyncs.begin(), time.Now()
	found := 0
	var failed []error
	for _, t := range a.tracked() {
		n, err := t.readAll(a.ctx, v)
		found += n
		failed = append(failed, err)
	}
	err := errors.Join(failed...)
	if a.ctx.Err() != nil {
		return
	}
	if err != nil {
		logf.FromContext(a.ctx).Error(err, "Reading the objects of a ring failed")
	}
	a.metrics.resyncs.WithLabelValues(a.name).Observe(time.Since(begin).Seconds())
	a.resyncs.end(v, found, err, time.Now())
	a.requestReport()
}

// readAll reads all objects of a resource and records the objects that must move. It returns their
// number and keeps no other objects.
func (t *tracker) readAll(ctx context.Context, v *view) (found int, err error) {
	if !v.isLabelled(t.resource) {
		return 0, nil
	}
	check := func(m *metav1.PartialObjectMetadata) {
		if t.isMisplaced(v, m) {
			found++
			t.addFound(strip(t.keys, t.keyLabel, m))
		}
	}
	err = t.stream(ctx, check)
	if errors.Is(err, errStreamEnded) {
		// The API server ends a watch that falls behind, for example because the objects found so
		// far are already moving. A retry would probably fail in the same way, after a longer wait
		// each time.
		logf.FromContext(ctx).V(1).Info("The stream of objects ended early, reading pages", "resource", t.mapping.Resource.String())
		err = t.page(ctx, check)
	}
	if err != nil {
		return found, fmt.Errorf("reading all %s: %w", t.mapping.Resource.GroupResource(), err)
	}
	return found, nil
}

// isMisplaced reports whether an object must move but is not covered by a watch. The watches cover
// objects without a live shard and objects in a hand-over.
func (t *tracker) isMisplaced(v *view, m *metav1.PartialObjectMetadata) bool {
	shard := m.Labels[t.keys.shard]
	if !v.selects(t.mapping, m) {
		return shard != "" // its namespace has left the ring
	}
	if t.main != nil {
		return v.live[shard] && m.Labels[t.keys.drain] == "" && t.decide(v, m).Action != handover.Keep
	}
	ref := metav1.GetControllerOf(m)
	main := t.of.mainOf(t.resource, ref)
	if main == nil || shard != "" && !v.live[shard] {
		return false
	}
	owner := place.Controller(main.mapping.GroupVersionKind.GroupKind(), main.isClusterScoped(), m.Namespace, ref)
	belongs := v.table.Of(place.Key(*main.main, m.Labels, owner))
	return shard != belongs.Now && shard != belongs.Next // if so, process reads its controller as well
}

// errStreamEnded means that a watch ended before it had sent all objects.
var errStreamEnded = errors.New("the watch ended before the list was complete")

// stream calls each for every object of the resource. The API server streams the objects from its
// cache; if it does not support that, stream reads pages.
func (t *tracker) stream(ctx context.Context, each func(*metav1.PartialObjectMetadata)) error {
	w, err := t.client.Watch(ctx, metav1.ListOptions{
		SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	if err != nil {
		return t.page(ctx, each)
	}
	defer w.Stop()
	for {
		var e watch.Event
		var isOpen bool
		select {
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // the assigner stops
		case e, isOpen = <-w.ResultChan():
		}
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object) //nolint:wrapcheck // readAll adds the context
		}
		m, isMetadata := e.Object.(*metav1.PartialObjectMetadata)
		switch {
		case !isOpen || !isMetadata:
			return errStreamEnded
		case e.Type == watch.Bookmark && m.Annotations[metav1.InitialEventsAnnotationKey] == "true":
			return nil
		case e.Type == watch.Added || e.Type == watch.Modified:
			each(m)
		}
	}
}

// page calls each for every object of the resource.
func (t *tracker) page(ctx context.Context, each func(*metav1.PartialObjectMetadata)) error {
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return t.client.List(ctx, o) })
	return list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error { //nolint:wrapcheck // readAll adds the context
		if m, ok := object.(*metav1.PartialObjectMetadata); ok {
			each(m)
		}
		return nil
	})
}
