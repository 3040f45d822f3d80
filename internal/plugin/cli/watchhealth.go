package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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
	// onError is called with each error, and onSuccess with each success after which no watch is
	// broken. Calls are sequential.
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

// ignoreWatchError is an error handler of informers that report to a watchHealth. The default
// writes to a log.
func ignoreWatchError(context.Context, *toolscache.Reflector, error) {}

// shownHealth returns a watchHealth that prints why watches are broken, each reason once, and when
// all of them work again.
func (p *plugin) shownHealth() *watchHealth {
	shown := map[string]bool{} // the reasons since all watches last worked
	return &watchHealth{
		onError: func(err error) {
			reason := err.Error()
			if request, ok := errors.AsType[*url.Error](err); ok {
				reason = request.Err.Error() // the URL differs with each attempt
			}
			if !shown[reason] {
				shown[reason] = true
				_, _ = fmt.Fprintf(p.ErrOut, "The watch failed and is being retried: %v\n", p.Explain(err))
			}
		},
		onSuccess: func() {
			if len(shown) > 0 {
				clear(shown)
				_, _ = fmt.Fprintln(p.ErrOut, "The watch has recovered.")
			}
		},
	}
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
