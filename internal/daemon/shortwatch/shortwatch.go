// Package shortwatch keeps client-go's reflectors working while watches are repeatedly cut.
//
// A reflector attributes a watch that ends within a second without an event to an unhealthy server:
// it lists again after a pause of one or two seconds, and doubles that pause up to a minute
// (client-go, tools/cache, VeryShortWatchError). But a restarting API server or a load balancer
// that closes idle connections cuts watches as well, and a cache that waits is stale.
package shortwatch

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// minDuration is how long a watch without events must last for a reflector.
	minDuration = time.Second
	// storing bounds how long a reflector takes to store a streamed list. It starts to time a watch
	// only then.
	storing = time.Second
)

// Hold returns a watch with the events of w. If w ends within a second without any event, it ends
// only after that second: the reflector then resumes at once, and opens at most one watch per
// second. A watch that begins with a streamed list is timed from the list's end, as by the
// reflector. delivered is called before each event is passed on; it may be nil.
func Hold(w watch.Interface, delivered func()) watch.Interface {
	if delivered == nil {
		delivered = func() {}
	}
	h := &held{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go h.pass(w.ResultChan(), delivered)
	return h
}

// held is a watch that does not end too early.
type held struct {
	watch.Interface

	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

// pass passes the events on until the watch ends or is stopped.
func (h *held) pass(events <-chan watch.Event, delivered func()) {
	defer close(h.events)
	least := time.NewTimer(minDuration)
	defer least.Stop()
	for empty := true; ; {
		select {
		case <-h.stopped:
			return
		case event, ok := <-events:
			if !ok {
				if empty {
					h.wait(least.C)
				}
				return
			}
			delivered()
			select {
			case h.events <- event:
				if empty = endsList(event); empty {
					least.Reset(minDuration + storing)
				}
			case <-h.stopped:
				return
			}
		}
	}
}

// endsList reports whether an event is the last one of a streamed list.
func endsList(e watch.Event) bool {
	if e.Type != watch.Bookmark {
		return false
	}
	m, err := meta.Accessor(e.Object)
	return err == nil && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// wait returns when the timer fires or the watch is stopped.
func (h *held) wait(until <-chan time.Time) {
	select {
	case <-until:
	case <-h.stopped:
	}
}

// ResultChan returns the events of the watch.
func (h *held) ResultChan() <-chan watch.Event { return h.events }

// Stop ends the watch.
func (h *held) Stop() {
	h.stop.Do(func() { close(h.stopped) })
	h.Interface.Stop()
}
