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

// pass reads all objects of the ring whenever that is due, until the assigner ends.
func (a *assigner) pass() {
	for {
		wait := a.passes.next(time.Now(), a.SyncPeriod)
		if wait == 0 {
			a.passOnce()
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-a.ctx.Done():
			timer.Stop()
			return
		case <-a.passes.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// passOnce reads all objects of the ring, and notes those that must move.
func (a *assigner) passOnce() {
	v, begin := a.passes.begin(), time.Now()
	noted := 0
	var failed []error
	for _, t := range a.tracked() {
		n, err := t.readAll(a.ctx, v)
		noted += n
		failed = append(failed, err)
	}
	err := errors.Join(failed...)
	if a.ctx.Err() != nil {
		return
	}
	if err != nil {
		logf.FromContext(a.ctx).Error(err, "Reading the objects of a ring failed")
	}
	a.metrics.passes.WithLabelValues(a.name).Observe(time.Since(begin).Seconds())
	a.passes.end(v, noted, err, time.Now())
	a.touch()
}

// readAll reads all objects of a resource, and notes those that must move. It keeps nothing else of them.
func (t *tracker) readAll(ctx context.Context, v *view) (noted int, err error) {
	if !v.isLabelled(t.resource) {
		return 0, nil
	}
	see := func(m *metav1.PartialObjectMetadata) {
		if t.isMisplaced(v, m) {
			noted++
			t.note(strip(t.keys, t.keyLabel, m))
		}
	}
	err = t.stream(ctx, see)
	if errors.Is(err, errStreamEnded) {
		// The API server ends a watch that falls behind, and what was found so far moves already.
		// Another attempt would meet the same, and wait longer each time.
		logf.FromContext(ctx).V(1).Info("Reading pages, as the stream of objects ended early", "resource", t.mapping.Resource.String())
		err = t.page(ctx, see)
	}
	if err != nil {
		return noted, fmt.Errorf("reading all %s: %w", t.mapping.Resource.GroupResource(), err)
	}
	return noted, nil
}

// isMisplaced reports whether an object must move that no watch shows. The watches show those that no live
// shard has, and those in a hand-over.
func (t *tracker) isMisplaced(v *view, m *metav1.PartialObjectMetadata) bool {
	shard := m.Labels[t.keys.shard]
	if !v.selects(t.mapping, m) {
		return shard != "" // it has left
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
	return shard != belongs.Now && shard != belongs.Next // then its owner is read, too
}

// errStreamEnded means that a watch ended before it had sent what there is.
var errStreamEnded = errors.New("the watch ended before the list was complete")

// stream calls each with every object of the resource. The API server sends them from its cache, one after
// the other; one that cannot do that is asked for pages.
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
			return ctx.Err() //nolint:wrapcheck // the assigner ends
		case e, isOpen = <-w.ResultChan():
		}
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object) //nolint:wrapcheck // readAll says what failed
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

// page calls each with every object of the resource.
func (t *tracker) page(ctx context.Context, each func(*metav1.PartialObjectMetadata)) error {
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return t.client.List(ctx, o) })
	return list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error { //nolint:wrapcheck // readAll says what failed
		if m, ok := object.(*metav1.PartialObjectMetadata); ok {
			each(m)
		}
		return nil
	})
}
