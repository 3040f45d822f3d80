package history

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// slack is how far from its time the end of a watch may be. No etcd is restored in that time.
const slack = 5 * time.Second

// past is a ListerWatcher that looks, before it goes on after an interruption, whether the cluster still has behind it
// what was seen. Its informer makes one request at a time.
type past struct {
	toolscache.ListerWatcher // its methods without context are deprecated; nobody calls them

	lw      toolscache.ListerWatcherWithContext
	history *History
	// ends is when the open watch is to end: one that is gone on with then was not interrupted. Zero if none is open.
	ends time.Time
}

var _ toolscache.ListerWatcherWithContext = (*past)(nil)

// ListWithContext lists, by pages perhaps.
func (p *past) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		if err := p.check(ctx, options.ResourceVersion); err != nil {
			return nil, err
		}
	}
	list, err := p.lw.ListWithContext(ctx, options)
	if err == nil {
		p.ends = time.Now() // the watch from there follows
	}
	return list, err
}

// WatchWithContext watches.
func (p *past) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := p.check(ctx, options.ResourceVersion); err != nil {
		return nil, err
	}
	opened, err := p.lw.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	if options.TimeoutSeconds != nil {
		p.ends = time.Now().Add(time.Duration(*options.TimeoutSeconds) * time.Second)
	}
	p.history.goOn(p)
	return opened, nil
}

// check returns [ErrWentBack] if what is to be gone on from is yet to come.
func (p *past) check(ctx context.Context, from string) error {
	isInTurn := time.Since(p.ends).Abs() < slack
	if !p.ends.IsZero() && !isInTurn {
		p.history.restarts.Inc()
	}
	p.ends = time.Time{}
	if isInTurn || from == "" || from == "0" { // 0: from whatever there is
		return nil
	}
	p.history.interrupt(p)
	// With no resourceVersion it is that of etcd now, whatever the API server has in its cache.
	list, err := p.lw.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	now, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("reading the resourceVersion of a list: %w", err)
	}
	return p.history.Compare(from, now.GetResourceVersion())
}
