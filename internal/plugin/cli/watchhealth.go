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
// is not called while the API server refuses connections or has too many requests, nor when a watch
// works again. It is safe for concurrent use.
type watchHealth struct {
	// failed is called with each error, and works when none of the watches is broken.
	failed func(error)
	works  func()

	mu     sync.Mutex
	broken map[any]bool // by informer
}

// newInformer makes an informer that reports. It is for the option NewInformer of a cache.
func (h *watchHealth) newInformer(
	lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	from := toolscache.ToListerWatcherWithContext(lw)
	return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := from.ListWithContext(ctx, options)
			if err != nil { // that a list works does not say that a watch does
				h.note(ctx, lw, err)
			}
			return list, err //nolint:wrapcheck // the informer knows it
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := from.WatchWithContext(ctx, options)
			h.note(ctx, lw, err)
			return w, err //nolint:wrapcheck // the informer knows it
		},
	}, kind, resync, indexers)
}

// note notes how a request of an informer ended.
func (h *watchHealth) note(ctx context.Context, informer any, err error) {
	// The informer lists instead, at once. An API server before 1.32 refuses watches that begin
	// with a list.
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
		h.failed(err)
		return
	}
	delete(h.broken, informer)
	if len(h.broken) == 0 {
		h.works()
	}
}
