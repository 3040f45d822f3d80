package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
)

const (
	// calm is the time without events after which all work is considered done: a watcher records each
	// event of a node that it sees.
	calm = 2 * time.Second
	// lookPeriod is the polling interval.
	lookPeriod = 50 * time.Millisecond
	// patience bounds the time without events while work is left.
	patience = time.Minute
)

// observer watches the metadata of Nodes and transactions. It does so for the bare client, too, so
// that it costs both the same. It is safe for concurrent use.
type observer struct {
	cancel  context.CancelFunc
	readers sync.WaitGroup

	mu      sync.Mutex
	lives   map[types.UID]*life
	queued  map[string]bool // names of transactions
	last    time.Time       // the time of the last event
	failure error           // why a watch ended
}

// life is one incarnation of a node. A zero time means that the event has not been seen.
type life struct{ created, restored time.Time }

// observe starts to watch a cluster without nodes. The caller must stop the result.
func observe(ctx context.Context, c client.WithWatch) (*observer, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &observer{cancel: cancel, lives: map[types.UID]*life{}, queued: map[string]bool{}}
	for _, w := range []struct {
		kind, namespace string
		take            func(watch.EventType, *metav1.PartialObjectMetadata)
	}{
		{"Node", "", o.takeNode},
		{"ConfigMap", transactionNamespace, o.takeTransaction},
	} {
		events, err := startWatch(ctx, c, w.kind, w.namespace)
		if err != nil {
			o.stop()
			return nil, fmt.Errorf("watching every %s: %w", w.kind, err)
		}
		o.readers.Go(func() { o.read(ctx, events, w.take) })
	}
	return o, nil
}

func startWatch(ctx context.Context, c client.WithWatch, kind, namespace string) (watch.Interface, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind + "List"}}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, list, &client.ListOptions{Namespace: namespace, Raw: &options})
		},
	})
}

func (o *observer) read(ctx context.Context, w watch.Interface, take func(watch.EventType, *metav1.PartialObjectMetadata)) {
	defer w.Stop()
	for e := range w.ResultChan() {
		obj, ok := e.Object.(*metav1.PartialObjectMetadata)
		o.mu.Lock()
		if ok && e.Type != watch.Bookmark {
			o.last = time.Now()
			take(e.Type, obj)
		} else if e.Type == watch.Error {
			o.failure = fmt.Errorf("a watch ended: %w", apierrors.FromObject(e.Object))
		}
		o.mu.Unlock()
	}
	if ctx.Err() == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.failure = errors.Join(o.failure, errors.New("a watch ended by itself"))
	}
}

func (o *observer) takeNode(typ watch.EventType, n *metav1.PartialObjectMetadata) {
	if typ == watch.Deleted {
		return
	}
	l := o.lives[n.UID]
	if l == nil {
		l = &life{created: o.last}
		o.lives[n.UID] = l
	}
	if marker := n.Labels[labels.Marker]; l.restored.IsZero() && marker != "" && marker != labels.Pending {
		l.restored = o.last
	}
}

func (o *observer) takeTransaction(typ watch.EventType, cm *metav1.PartialObjectMetadata) {
	if typ == watch.Deleted {
		delete(o.queued, cm.Name)
		return
	}
	o.queued[cm.Name] = true
}

// awaitQuiet waits until the nodes are restored, no transaction is left, and no further event has
// come for a while. It returns the time of the last event.
func (o *observer) awaitQuiet(ctx context.Context, restored []types.UID) (last time.Time, err error) {
	err = wait.PollUntilContextCancel(ctx, lookPeriod, true, func(context.Context) (bool, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.failure != nil {
			return false, o.failure
		}
		last = o.last
		missing := o.missingLocked(restored)
		if missing == 0 && len(o.queued) == 0 {
			return time.Since(last) >= calm, nil
		}
		if time.Since(last) >= patience {
			return false, fmt.Errorf("nothing happens, %d nodes are without their labels, and %d transactions are left", missing, len(o.queued))
		}
		return false, nil
	})
	return last, err
}

// awaitRestored waits until that many incarnations that were created since have their labels.
func (o *observer) awaitRestored(ctx context.Context, count int, since time.Time) error {
	return wait.PollUntilContextCancel(ctx, lookPeriod, true, func(context.Context) (bool, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		restored := 0
		for _, l := range o.lives {
			if !l.restored.IsZero() && l.created.After(since) {
				restored++
			}
		}
		return restored >= count, o.failure
	})
}

func (o *observer) missingLocked(restored []types.UID) int {
	missing := 0
	for _, uid := range restored {
		if l := o.lives[uid]; l == nil || l.restored.IsZero() {
			missing++
		}
	}
	return missing
}

// latencies returns how long each of the incarnations waited for its labels, sorted.
func (o *observer) latencies(uids []types.UID) []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]time.Duration, 0, len(uids))
	for _, uid := range uids {
		all = append(all, o.lives[uid].restored.Sub(o.lives[uid].created))
	}
	slices.Sort(all)
	return all
}

// lastRestored returns when the last of the incarnations got its labels.
func (o *observer) lastRestored(uids []types.UID) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	var last time.Time
	for _, uid := range uids {
		if l := o.lives[uid]; l.restored.After(last) {
			last = l.restored
		}
	}
	return last
}

// stop ends the watches.
func (o *observer) stop() {
	o.cancel()
	o.readers.Wait()
}
