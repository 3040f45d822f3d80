package watcher

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// Listings knows when an informer last listed its objects, at its start or
// after a gap in its watch. The zero value is ready; it is safe for concurrent use.
//
// What a watcher concludes from a list can overtake what another one saw happen and has not
// stored yet: if that is the end of an incarnation, with its last labels, the next incarnation
// would get older ones. So a watcher that has listed leaves those that run a head start.
type Listings struct {
	mu   sync.Mutex
	last time.Time
}

// NewInformer is for cache.Options.NewInformer: the informer of Nodes, metadata only, tells the Listings when it lists; others are as usual.
func (l *Listings) NewInformer(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if _, isNode := obj.(*metav1.PartialObjectMetadata); !isNode {
		return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
	}
	return toolscache.NewSharedIndexInformer(&noticing{
		ListerWatcher: lw,
		lw:            toolscache.ToListerWatcherWithContext(lw),
		listings:      l,
	}, obj, resync, indexers)
}

// Last returns when the informer last listed; the zero time if it never did.
func (l *Listings) Last() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *Listings) notice() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
}

// noticing is a ListerWatcher that tells when it lists.
type noticing struct {
	toolscache.ListerWatcher // its methods without context are deprecated; nobody calls them

	lw       toolscache.ListerWatcherWithContext
	listings *Listings
}

var _ toolscache.ListerWatcherWithContext = (*noticing)(nil)

// ListWithContext lists by pages.
func (n *noticing) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	n.listings.notice()
	return n.lw.ListWithContext(ctx, options)
}

// WatchWithContext watches, or lists by a watch that begins with what is there (KEP-3157).
func (n *noticing) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		n.listings.notice()
	}
	return n.lw.WatchWithContext(ctx, options)
}

// headStart returns how much longer this watcher leaves the writing to others.
func (w *Watcher) headStart() time.Duration {
	return max(0, time.Until(w.listings.Last().Add(w.headStartTime)))
}

// giveHeadStart returns when the head start is over or ctx is cancelled.
func (w *Watcher) giveHeadStart(ctx context.Context) {
	timer := time.NewTimer(w.headStart())
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
