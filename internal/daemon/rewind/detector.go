package rewind

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
)

// ErrRewound means that the state in this process belongs to a lost future. The process must be
// restarted.
var ErrRewound = errors.New("the cluster was rewound, as by a restore of etcd from a backup (start this program again)")

// Detector monitors the watches of one process. It is safe for concurrent use; the methods of a nil
// Detector report that nothing was rewound.
type Detector struct {
	proof    chan error // holds the first proof
	restarts prometheus.Counter

	mu          sync.Mutex
	rewound     bool
	interrupted map[*stream]bool
	// alive is when any watch last delivered an event or resumed without an interruption, and
	// aliveOf is the same for each watch.
	alive   time.Time
	aliveOf map[*stream]time.Time
	// resumedAt is when any watch last resumed after it had ended early, with or without an
	// interruption.
	resumedAt time.Time
	// confirmedFrom is when the last interruption of any watch ended. What was observed before is
	// unconfirmed.
	confirmedFrom time.Time
}

// New returns a Detector.
func New() *Detector {
	return &Detector{
		proof: make(chan error, 1), restarts: newRestarts(),
		interrupted: map[*stream]bool{}, aliveOf: map[*stream]time.Time{},
	}
}

// NewInformer is the type of cache.Options.NewInformer.
type NewInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// Informers returns a function that creates the informers of next, or client-go's own if next is
// nil, and attaches them to the Detector.
func (d *Detector) Informers(next NewInformer) NewInformer {
	if next == nil {
		next = toolscache.NewSharedIndexInformer
	}
	return func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		requests := d.Requests(lw)
		if s, ok := requests.(*stream); ok {
			s.object = reflect.TypeOf(obj)
		}
		return next(requests, obj, resync, indexers)
	}
}

// Requests returns the same requests, attached to the Detector. They must belong to one reflector
// or informer. A nil Detector returns lw unchanged.
func (d *Detector) Requests(lw toolscache.ListerWatcher) toolscache.ListerWatcher {
	if d == nil {
		return lw
	}
	return &stream{ListerWatcher: lw, lw: toolscache.ToListerWatcherWithContext(lw), detector: d}
}

// Run returns an error when the cluster was rewound, in which case the process must exit, and nil
// when ctx is done.
func (d *Detector) Run(ctx context.Context) error {
	if d == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.proof:
		return err
	}
}

// Rewound reports whether the cluster was rewound. If so, nothing from this process's memory may be
// written any more.
func (d *Detector) Rewound() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rewound
}

// Unconfirmed reports whether an event observed at that time may belong to a lost future: a live
// read must confirm it before it is written. While a watch is interrupted, every event is
// unconfirmed.
func (d *Detector) Unconfirmed(observedAt time.Time) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rewound || len(d.interrupted) > 0 || observedAt.Before(d.confirmedFrom)
}

// LastResumed returns when a watch last resumed after it had ended early, or zero if none has. A
// cache that depends on that watch may be behind for a moment longer. If a list comes in between,
// it makes up for the missed events, and the time does not count.
func (d *Detector) LastResumed() time.Time {
	if d == nil {
		return time.Time{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.resumedAt
}

// Behind returns how far the informers of objects of the type of obj may be behind the cluster. It
// is zero while each of their watches is open and delivers at least bookmarks, which the API server
// sends about once a minute. Other watches do not count.
func (d *Detector) Behind(obj runtime.Object) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var behind time.Duration
	for s, alive := range d.aliveOf {
		age := time.Since(alive)
		if s.object == reflect.TypeOf(obj) && (d.interrupted[s] || age >= silent) {
			behind = max(behind, age)
		}
	}
	return behind
}

// silent is longer than the time between two bookmarks.
const silent = 2 * time.Minute

// Compare compares two resourceVersions of one object, or of one kind of objects, in the order in
// which they were observed. It returns [ErrRewound] if the second is lower.
func (d *Detector) Compare(before, after string) error {
	order, err := resourceversion.CompareResourceVersion(after, before)
	if d == nil || err != nil || order >= 0 {
		return nil //nolint:nilerr // a malformed resourceVersion proves nothing
	}
	return d.ReportRewind(fmt.Sprintf("from resourceVersion %s to %s", before, after))
}

// ReportRewind records another proof that the cluster was rewound. It returns [ErrRewound] with the
// proof.
func (d *Detector) ReportRewind(proof string) error {
	err := fmt.Errorf("%w: %s", ErrRewound, proof)
	if d == nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.rewound {
		d.rewound = true
		d.proof <- err
	}
	return err
}

// delivered records that a watch has delivered an event.
func (d *Detector) delivered(s *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.aliveLocked(s)
}

func (d *Detector) aliveLocked(s *stream) {
	d.alive = time.Now()
	d.aliveOf[s] = d.alive
}

// deliveredWithin reports whether any watch has delivered an event within the given time.
func (d *Detector) deliveredWithin(moment time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.alive) < moment
}

// interrupt records that a watch has ended early.
func (d *Detector) interrupt(s *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.interrupted[s] = true
}

// resume records that a watch has resumed, and whether the previous one had ended early.
func (d *Detector) resume(s *stream, wasCut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if wasCut || d.interrupted[s] {
		d.resumedAt = now
	}
	if !d.interrupted[s] {
		d.aliveLocked(s)
		return
	}
	// A watch that was only reopened proves nothing about the time before: etcd may be a restored
	// one, and other watches must find that out for themselves.
	delete(d.interrupted, s)
	d.confirmedFrom = now
}
