package rewind

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/daemon/shortwatch"
)

// slack bounds how early or late a watch may end. No etcd is restored in that time.
const slack = 5 * time.Second

// quick bounds how long after the last delivery a watch may resume without a check, so that watches
// that the API server ends under load cost nothing. A restore of etcd takes longer: it must be
// stopped and started on other data, and its API servers must connect to it and list.
const quick = 2 * time.Second

// stream is a ListerWatcher that checks, before it resumes after an interruption, whether the
// cluster's history still includes the observed events. Its reflector makes one request at a time.
type stream struct {
	toolscache.ListerWatcher // its methods without context are deprecated and never called

	lw       toolscache.ListerWatcherWithContext
	detector *Detector
	// object is the type of the objects of an informer, nil if the requests are not an informer's.
	object reflect.Type
	// ends is when the open watch must end: a watch that resumes then was not interrupted. It is
	// zero if none is open.
	ends time.Time
	// opened is set once a watch has been open.
	opened bool
}

var _ toolscache.ListerWatcherWithContext = (*stream)(nil)

// ListWithContext lists, possibly page by page.
func (s *stream) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		if err := s.check(ctx, options.ResourceVersion, s.isInTime(s.ends)); err != nil {
			return nil, err
		}
	}
	list, err := s.lw.ListWithContext(ctx, options)
	if err == nil {
		s.ends = time.Now() // the watch from there follows
	}
	return list, err
}

// WatchWithContext watches.
func (s *stream) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	began, ends := time.Now(), s.ends
	trusted := s.isInTime(ends)
	wasCut := !ends.IsZero() && began.Sub(ends).Abs() >= slack
	if err := s.check(ctx, options.ResourceVersion, trusted); err != nil {
		return nil, err
	}
	opened, err := s.lw.WatchWithContext(ctx, options)
	if err != nil {
		// An API server without WatchList refuses a first watch that begins with the existing objects,
		// and the reflector then lists them: nothing was interrupted.
		if s.opened || options.ResourceVersion != "" {
			s.detector.interrupt(s)
		}
		return nil, err
	}
	// etcd may have been restored since the comparison, or since the previous watch ended.
	if trusted && !s.isInTime(ends) || !trusted && time.Since(began) >= slack {
		err = s.compare(ctx, options.ResourceVersion)
	}
	if err != nil {
		opened.Stop()
		s.detector.interrupt(s)
		return nil, err
	}
	s.opened = true
	if options.TimeoutSeconds != nil {
		s.ends = time.Now().Add(time.Duration(*options.TimeoutSeconds) * time.Second)
	}
	s.detector.resume(s, wasCut)
	return shortwatch.Hold(opened, func() { s.detector.delivered(s) }), nil
}

// check returns [ErrRewound] if the stream would resume from a resourceVersion in the future. A
// stream that resumes in time is not compared.
func (s *stream) check(ctx context.Context, from string, inTime bool) error {
	if !s.ends.IsZero() && !inTime {
		s.detector.restarts.Inc()
	}
	s.ends = time.Time{}
	if inTime {
		return nil
	}
	return s.compare(ctx, from)
}

// compare interrupts the stream and compares its last resourceVersion with etcd's current one.
func (s *stream) compare(ctx context.Context, from string) error {
	if from == "" || from == "0" { // from any state
		return nil
	}
	s.detector.interrupt(s)
	// Without a resourceVersion, the list returns etcd's current one, whatever the API server has
	// in its cache.
	list, err := s.lw.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	now, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("reading the resourceVersion of a list: %w", err)
	}
	return s.detector.Compare(from, now.GetResourceVersion())
}

// isInTime reports whether a watch that has ended, and had to end at the given time, may be resumed
// without a check. A zero time means that there was no watch.
func (s *stream) isInTime(ends time.Time) bool {
	return time.Since(ends).Abs() < slack || !ends.IsZero() && s.detector.deliveredWithin(quick)
}
