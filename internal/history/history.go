package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
)

// doubt is how long after an interruption what is remembered is to be confirmed. By then every retry of what
// failed meanwhile has had its turn.
const doubt = time.Minute

// ErrWentBack says that what this process remembers is of a lost future: only a new process is without it.
var ErrWentBack = errors.New("the history of the cluster went back, as after a restore of etcd from a backup (start this program again)")

// History is what the watches of one process tell of the cluster's history. It is safe for concurrent use; nil is one
// that never goes back.
type History struct {
	wentBack chan error // holds the first reason
	restarts prometheus.Counter

	mu          sync.Mutex
	isLost      bool
	interrupted map[*past]bool
	goesOnSince time.Time // when the last interruption ended
}

// New returns a History that goes on.
func New() *History {
	return &History{wentBack: make(chan error, 1), restarts: newRestarts(), interrupted: map[*past]bool{}}
}

// NewInformer is the type of cache.Options.NewInformer.
type NewInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// Informers returns what makes the informers of next, nil for client-go's own, so that the History learns from their watches.
func (h *History) Informers(next NewInformer) NewInformer {
	if next == nil {
		next = toolscache.NewSharedIndexInformer
	}
	return func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		return next(&past{ListerWatcher: lw, lw: toolscache.ToListerWatcherWithContext(lw), history: h}, obj, resync, indexers)
	}
}

// Run returns an error when the history went back, and nil when ctx is done: a process that runs it ends then.
func (h *History) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-h.wentBack:
		return err
	}
}

// WentBack says that the history did: nothing is to be written any more from what is remembered.
func (h *History) WentBack() bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isLost
}

// InDoubt says whether a watch is interrupted or was a short while ago: what is remembered is to be confirmed by a fresh
// read before it is written.
func (h *History) InDoubt() bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isLost || len(h.interrupted) > 0 || time.Since(h.goesOnSince) < doubt
}

// Compare takes two resourceVersions of one object, or of one kind of objects, in the order in which they were
// seen. It returns [ErrWentBack] if the second is lower, and then the History went back.
func (h *History) Compare(before, after string) error {
	order, err := resourceversion.CompareResourceVersion(after, before)
	if h == nil || err != nil || order >= 0 {
		return nil //nolint:nilerr // what is no resourceVersion of etcd's says nothing
	}
	return h.Lost(fmt.Sprintf("from resourceVersion %s to %s", before, after))
}

// Lost is for who has another proof that the history went back. It returns [ErrWentBack] with the proof.
func (h *History) Lost(proof string) error {
	err := fmt.Errorf("%w: %s", ErrWentBack, proof)
	if h == nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isLost {
		h.isLost = true
		h.wentBack <- err
	}
	return err
}

func (h *History) interrupt(p *past) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupted[p] = true
}

func (h *History) goOn(p *past) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.interrupted[p] {
		delete(h.interrupted, p)
		h.goesOnSince = time.Now()
	}
}
