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

// ErrRewound means that what this process remembers is of a lost future: only a new process is
// without it.
var ErrRewound = errors.New("the cluster was rewound, as by a restore of etcd from a backup (start this program again)")

// Detector watches over the watches of one process. It is safe for concurrent use; the methods of a
// nil Detector report that nothing was rewound.
type Detector struct {
	proof    chan error // holds the first proof
	resumed  chan struct{}
	restarts prometheus.Counter

	mu          sync.Mutex
	evidence    Evidence
	rewound     bool
	interrupted map[*stream]bool
	// alive is when any watch has last delivered something, or went on without an interruption, and
	// aliveOf is when each has.
	alive   time.Time
	aliveOf map[*stream]time.Time
	// resumedAt is when any watch last went on that had ended before its time, interruption or not.
	resumedAt time.Time
	doubts    doubts
}

// New returns a Detector without evidence: [Detector.SetEvidence] sets it.
func New() *Detector {
	return &Detector{
		proof: make(chan error, 1), resumed: make(chan struct{}, 1), restarts: newRestarts(),
		interrupted: map[*stream]bool{}, aliveOf: map[*stream]time.Time{},
	}
}

// SetEvidence sets the evidence. Call it before Run.
func (d *Detector) SetEvidence(evidence Evidence) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.evidence = evidence
}

// NewInformer is the type of cache.Options.NewInformer.
type NewInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// Informers returns a function that makes the informers of next, nil for client-go's own, so that
// the Detector learns from their watches.
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

// Requests returns the same requests, so that the Detector learns from them. They must be those of
// one reflector or informer. A nil Detector learns nothing.
func (d *Detector) Requests(lw toolscache.ListerWatcher) toolscache.ListerWatcher {
	if d == nil {
		return lw
	}
	return &stream{ListerWatcher: lw, lw: toolscache.ToListerWatcherWithContext(lw), detector: d}
}

// Run asks for evidence after each interruption. It returns an error when the cluster was rewound,
// upon which the process must end, and nil when ctx is done.
func (d *Detector) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { d.confirm(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.proof:
		return err
	}
}

// Rewound reports whether the cluster was: nothing that the process remembers may be written any
// more.
func (d *Detector) Rewound() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rewound
}

// Unconfirmed reports whether something that this process observed at that time may be of a lost
// future: a live read must confirm it before it is written. While a watch is interrupted, that is
// so for everything.
func (d *Detector) Unconfirmed(observedAt time.Time) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rewound || len(d.interrupted) > 0 || d.doubts.cover(observedAt)
}

// LastResumed returns when a watch last went on that had ended before its time, or zero if none has.
// A cache that depends on that watch may be behind for a moment longer. A list in between makes up
// for what the watch has missed, and counts as no such time.
func (d *Detector) LastResumed() time.Time {
	if d == nil {
		return time.Time{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.resumedAt
}

// Behind returns how far the informers of objects of the type of obj may be behind the cluster. It is
// zero as long as each of their watches is open and delivers, be it only a bookmark, which the API
// server sends about once a minute. What other watches deliver does not count.
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

// Compare takes two resourceVersions of one object, or of one kind of objects, in the order in
// which they were observed. It returns [ErrRewound] if the second is lower.
func (d *Detector) Compare(before, after string) error {
	order, err := resourceversion.CompareResourceVersion(after, before)
	if d == nil || err != nil || order >= 0 {
		return nil //nolint:nilerr // what is no resourceVersion of etcd's says nothing
	}
	return d.Lost(fmt.Sprintf("from resourceVersion %s to %s", before, after))
}

// Lost takes another proof that the cluster was rewound. It returns [ErrRewound] with the proof.
func (d *Detector) Lost(proof string) error {
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

// delivered notes that a watch has delivered something.
func (d *Detector) delivered(s *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.aliveLocked(s)
}

func (d *Detector) aliveLocked(s *stream) {
	d.alive = time.Now()
	d.aliveOf[s] = d.alive
}

// deliveredWithin reports whether a watch has delivered something in the last moment.
func (d *Detector) deliveredWithin(moment time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.alive) < moment
}

// interrupt notes that a watch has ended before its time.
func (d *Detector) interrupt(s *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.interrupted) == 0 {
		d.doubts.begin(d.alive)
	}
	d.interrupted[s] = true
}

// resume notes that a watch goes on, and whether the one before it had ended before its time.
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
	// A watch that was only opened again shows nothing of before: etcd may be a restored one, and
	// other watches must find that out for themselves.
	delete(d.interrupted, s)
	if len(d.interrupted) > 0 {
		return
	}
	d.doubts.resume(now)
	select {
	case d.resumed <- struct{}{}:
	default: // asked for already
	}
}
