package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience bounds the wait for an expected event. The takeover of a dead processor's locks takes
// longest: about six seconds.
const patience = 45 * time.Second

var errTimeout = fmt.Errorf("timed out after %s", patience)

// observer watches the API and keeps what it saw. It is safe for concurrent use.
type observer struct {
	cancel  context.CancelFunc
	readers sync.WaitGroup

	mu      sync.Mutex
	seen    history       // only ever appended to
	changed chan struct{} // closed and replaced with every event
	failure error         // why a watch ended
}

// observe starts to watch. The cluster must be new: existing objects are not seen. The caller must call stop.
func observe(ctx context.Context, c client.WithWatch) (*observer, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &observer{cancel: cancel, changed: make(chan struct{})}
	for _, w := range []struct {
		kind      kind
		list      client.ObjectList
		namespace string
	}{
		{nodes, &corev1.NodeList{}, ""},
		{transactions, &corev1.ConfigMapList{}, transactionNamespace},
		{records, &corev1.ConfigMapList{}, metadataNamespace},
		{locks, &coordinationv1.LeaseList{}, transactionNamespace},
	} {
		events, err := startWatch(ctx, c, w.list, w.namespace)
		if err != nil {
			o.stop()
			return nil, fmt.Errorf("watching every %s: %w", w.kind, err)
		}
		o.readers.Go(func() { o.read(ctx, w.kind, events) })
	}
	return o, nil
}

// startWatch watches from now on. An interrupted watch resumes where it was, so no event is missed.
func startWatch(ctx context.Context, c client.WithWatch, list client.ObjectList, namespace string) (watch.Interface, error) {
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, list, &client.ListOptions{Namespace: namespace, Raw: &options})
		},
	})
}

// read keeps the events of one watch until it ends.
func (o *observer) read(ctx context.Context, k kind, w watch.Interface) {
	defer w.Stop()
	for e := range w.ResultChan() {
		obj, ok := e.Object.(client.Object)
		if !ok || e.Type == watch.Error {
			o.fail(fmt.Errorf("the watch of every %s ended: %w", k, apierrors.FromObject(e.Object)))
			return
		}
		o.keep(event{at: time.Now(), kind: k, typ: e.Type, obj: obj})
	}
	if ctx.Err() == nil {
		o.fail(fmt.Errorf("the watch of every %s ended", k))
	}
}

func (o *observer) keep(e event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, e)
	o.announceLocked()
}

func (o *observer) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failure = errors.Join(o.failure, err)
	o.announceLocked()
}

func (o *observer) announceLocked() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// now returns the events so far, and a channel that is closed when there are more.
func (o *observer) now() (seen history, more <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen, o.changed, o.failure
}

// history returns the events so far.
func (o *observer) history() history {
	seen, _, _ := o.now()
	return seen
}

// until waits until check accepts the events so far. After patience it returns an error that wraps
// the last one of check.
func (o *observer) until(ctx context.Context, check func(history) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errTimeout)
	defer cancel()
	for {
		seen, more, err := o.now()
		if err != nil {
			return err
		}
		missed := check(seen)
		if missed == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), missed)
		case <-more:
		}
	}
}

// stop ends the watches.
func (o *observer) stop() {
	o.cancel()
	o.readers.Wait()
}
