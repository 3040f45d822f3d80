package cli

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// watchHealth reports whether watches work. The error handler of an informer does not suffice: it
// is not called for refused connections and too many requests, nor when a watch recovers. It is
// safe for concurrent use.
type watchHealth struct {
	// onError is called with each error, and onSuccess when no watch is broken.
	onError   func(error)
	onSuccess func()

	mu     sync.Mutex
	broken map[any]bool // by informer
}

// newInformer returns an informer that reports its results: the option NewInformer of a cache.
func (h *watchHealth) newInformer(
	lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	from := toolscache.ToListerWatcherWithContext(lw)
	return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := from.ListWithContext(ctx, options)
			if err != nil { // a list that works does not prove that the watch works
				h.record(ctx, lw, err)
			}
			return list, err //nolint:wrapcheck // for the informer
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := from.WatchWithContext(ctx, options)
			// The informer lists at once if it may not begin with a watch; the list then reports the
			// right that is missing, and the two do not alternate on the page.
			if initial := options.SendInitialEvents != nil && *options.SendInitialEvents; !initial || !apierrors.IsForbidden(err) {
				h.record(ctx, lw, err)
			}
			return w, err //nolint:wrapcheck // for the informer
		},
	}, kind, resync, indexers)
}

// record records the result of a request of an informer.
func (h *watchHealth) record(ctx context.Context, informer any, err error) {
	// The informer falls back to a list at once, as with API servers before 1.32, which refuse
	// watches that begin with a list.
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if h.broken == nil {
			h.broken = map[any]bool{}
		}
		h.broken[informer] = true
		h.onError(err)
		return
	}
	delete(h.broken, informer)
	if len(h.broken) == 0 {
		h.onSuccess()
	}
}
