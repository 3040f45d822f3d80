package assignment

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// childPeriod is the time between two looks whether a child has moved with the object that controls it.
// Each look is a read.
const childPeriod = 5 * time.Second

// tracker follows the objects of one resource of a ring that something must be done about, and does it.
// One that fails delays no other.
type tracker struct {
	of       *assigner
	resource v1alpha1.GroupResource
	// main is what the ring says of a main resource, nil for one that is controlled only.
	main     *v1alpha1.Resource
	mapping  *meta.RESTMapping
	client   metadata.Getter
	keys     keys
	keyLabel string
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	ctx      context.Context //nolint:containedctx // that of its goroutines
	stop     context.CancelFunc

	mu         sync.Mutex
	selector   string
	exceptions *following
	drains     *following
	// found are the objects that a pass has found to move and that no watch shows.
	found map[types.NamespacedName]*metav1.PartialObjectMetadata
	// drained is since when each object was seen to be drained to the same shard.
	drained map[types.NamespacedName]drained
	// former are the shards that objects in a hand-over had.
	former map[types.UID]string
	// written are the resourceVersions of the last writes, as long as a watch may show older ones.
	written map[types.NamespacedName]string
	// moved are the objects whose children have moved before them, and attempted those whose children
	// began to, with the shard that they went to.
	moved     map[types.UID]moved
	attempted map[types.UID]attempt
	// given are the objects that a shard has given away by removing both labels, as shards of protocol 1
	// do: their children follow.
	given map[types.NamespacedName]given

	// isClosed reports that the tracker is not used any more: nothing must be noted of it.
	isClosed atomic.Bool
}

// moved is where the children of an object are.
type moved struct {
	to string
	// versions are the last resourceVersions of the children, by resource.
	versions map[string]string
}

// attempt is where the children of an object began to go.
type attempt struct {
	to string
	// isScattered reports that some may be elsewhere than at their former shard: an earlier attempt failed,
	// or it was for another shard.
	isScattered bool
}

type drained struct {
	uid   types.UID
	to    string
	since time.Time
	late  bool
}

// following is a watch of some objects, and those that it shows.
type following struct {
	store  cache.Store
	synced func() bool
	stop   context.CancelFunc
}

func newTracker(of *assigner, resource v1alpha1.GroupResource, main *v1alpha1.Resource, mapping *meta.RESTMapping) *tracker {
	t := &tracker{
		of: of, resource: resource, main: main, mapping: mapping, client: of.Metadata.Resource(mapping.Resource), keys: of.keys,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryPeriod, of.SyncPeriod)),
		found: map[types.NamespacedName]*metav1.PartialObjectMetadata{}, drained: map[types.NamespacedName]drained{}, former: map[types.UID]string{}, moved: map[types.UID]moved{},
		written: map[types.NamespacedName]string{}, attempted: map[types.UID]attempt{}, given: map[types.NamespacedName]given{},
	}
	if main != nil {
		t.keyLabel = main.KeyLabel
	}
	return t
}

// run works on the queue until ctx ends.
func (t *tracker) run() {
	var workers sync.WaitGroup
	for range t.of.Concurrency {
		workers.Go(func() {
			for t.processNext(t.ctx) {
			}
		})
	}
	<-t.ctx.Done()
	t.queue.ShutDown()
	workers.Wait()
}

// aim makes the tracker follow the objects that no live shard of a view has, and those in a hand-over. All
// that are known are looked at again.
func (t *tracker) aim(v *view) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drains == nil {
		t.drains = t.follow(t.keys.drain, t.seeDrain)
	}
	selector := t.exceptionsOf(v)
	if selector != t.selector {
		if t.exceptions != nil {
			t.exceptions.stop()
			t.exceptions = nil
		}
		if t.selector = selector; selector != "" {
			t.exceptions = t.follow(selector, t.seeException)
		}
	}
	for _, f := range []*following{t.exceptions, t.drains} {
		if f != nil {
			for _, key := range f.store.ListKeys() {
				t.enqueue(key)
			}
		}
	}
	for key := range t.found {
		t.queue.Add(key)
	}
}

// exceptionsOf returns the selector of the objects that no live shard has, "" if nothing can be done
// about them. New objects of a controlled resource are left to the policy if there is one.
func (t *tracker) exceptionsOf(v *view) string {
	names := v.liveNames()
	if len(names) == 0 {
		return ""
	}
	selector := t.keys.shard + " notin (" + strings.Join(names, ",") + ")"
	if t.main == nil && v.isUnderPolicy() {
		selector += "," + t.keys.shard
	}
	return selector
}

// follow begins to watch the objects that a selector matches. see is called with the key of each that
// changes, and with whether it is still there.
func (t *tracker) follow(selector string, see func(m *metav1.PartialObjectMetadata, isThere bool)) *following {
	ctx, stop := context.WithCancel(t.ctx)
	client := t.client
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = selector
				return client.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = selector
				return client.Watch(ctx, o)
			},
		},
		ObjectType: &metav1.PartialObjectMetadata{},
		Transform: func(object any) (any, error) {
			if m, ok := object.(*metav1.PartialObjectMetadata); ok {
				return strip(t.keys, t.keyLabel, m), nil
			}
			return object, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { tell(object, true, see) },
			UpdateFunc: func(_, object any) { tell(object, true, see) },
			DeleteFunc: func(object any) { tell(object, false, see) },
		},
	})
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) { // no event tells that there is nothing
			t.sweep()
			t.of.touch()
		}
	}()
	return &following{store: store, synced: informer.HasSynced, stop: stop}
}

// tell passes an event of an informer on.
func tell(object any, isThere bool, see func(m *metav1.PartialObjectMetadata, isThere bool)) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		see(m, isThere)
	}
}

// seeException notes an object that no live shard has, or had.
func (t *tracker) seeException(m *metav1.PartialObjectMetadata, isThere bool) {
	t.of.touch()
	switch {
	case !isThere:
		t.forgetWrite(keyFor(m))
		if t.isGiven(keyFor(m)) {
			t.queue.Add(keyFor(m))
		}
	case t.main == nil && m.Labels[t.keys.shard] != "":
		t.queue.AddAfter(keyFor(m), childPeriod) // the object that controls it takes it along
	default:
		t.queue.Add(keyFor(m))
	}
}

// sweep forgets what was written of objects that no watch shows any more.
func (t *tracker) sweep() {
	t.mu.Lock()
	keys := slices.Collect(maps.Keys(t.written))
	t.mu.Unlock()
	for _, key := range keys {
		t.forgetWrite(key)
	}
}

// forgetWrite forgets what was written of an object if no watch shows it any more.
func (t *tracker) forgetWrite(key types.NamespacedName) {
	if t.find(key) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.written, key)
}

// seeDrain notes an object that is in a hand-over, or was.
func (t *tracker) seeDrain(m *metav1.PartialObjectMetadata, isThere bool) {
	key := keyFor(m)
	if t.main == nil { // a child is in no hand-over of its own
		t.seeException(m, isThere)
		return
	}
	t.mu.Lock()
	if !isThere {
		if shard := m.Labels[t.keys.shard]; shard != "" && len(t.main.ControlledResources) > 0 {
			t.given[key] = given{m.UID, shard} // or the drain was withdrawn
		}
		if d, isKnown := t.drained[key]; isKnown {
			t.of.metrics.handovers.WithLabelValues(t.of.name).Observe(time.Since(d.since).Seconds())
		}
		delete(t.drained, key)
		delete(t.former, m.UID)
	} else {
		if shard := m.Labels[t.keys.shard]; shard != "" {
			t.former[m.UID] = shard
		}
		if d := t.drained[key]; d.uid != m.UID || d.to != m.Labels[t.keys.drain] {
			t.drained[key] = drained{uid: m.UID, to: m.Labels[t.keys.drain], since: time.Now()}
		}
	}
	t.mu.Unlock()
	t.of.touch()
	if isThere {
		t.of.moves.begin(t, key)
	} else {
		t.of.moves.end(t, key)
		t.forgetWrite(key)
	}
	t.queue.Add(key)
}

// enqueue adds an object by the key that stores have for it.
func (t *tracker) enqueue(key string) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err == nil {
		t.queue.Add(types.NamespacedName{Namespace: namespace, Name: name})
	}
}

// find returns what is known of an object, nil if nothing must be done about it.
func (t *tracker) find(key types.NamespacedName) *metav1.PartialObjectMetadata {
	t.mu.Lock()
	defer t.mu.Unlock()
	var newest *metav1.PartialObjectMetadata
	for _, f := range []*following{t.exceptions, t.drains} {
		if f == nil {
			continue
		}
		if object, isThere, err := f.store.GetByKey(storeKey(key)); err == nil && isThere {
			if m, ok := object.(*metav1.PartialObjectMetadata); ok && isNewer(m, newest) {
				newest = m
			}
		}
	}
	if m := t.found[key]; newest == nil && m != nil {
		return m
	}
	return newest
}

// note keeps an object that a pass has found.
func (t *tracker) note(m *metav1.PartialObjectMetadata) {
	t.mu.Lock()
	t.found[keyFor(m)] = m
	t.mu.Unlock()
	t.queue.Add(keyFor(m))
}

// forget forgets what a pass has found of an object, and reports whether one had.
func (t *tracker) forget(key types.NamespacedName) (wasThere bool) {
	t.mu.Lock()
	_, wasThere = t.found[key]
	delete(t.found, key)
	t.mu.Unlock()
	if wasThere {
		t.forgetWrite(key)
		t.of.touch()
	}
	return wasThere
}

// isFor reports whether the tracker is the one for what a ring says of a main resource, nil for one that
// is controlled only.
func (t *tracker) isFor(main *v1alpha1.Resource) bool {
	return equality.Semantic.DeepEqual(t.main, main)
}

func (t *tracker) isClusterScoped() bool { return t.mapping.Scope.Name() == meta.RESTScopeNameRoot }

func (t *tracker) processNext(ctx context.Context) bool {
	key, isDown := t.queue.Get()
	if isDown {
		return false
	}
	defer t.queue.Done(key)
	if ctx.Err() != nil {
		return false
	}
	isDone, err := t.process(ctx, key)
	t.of.moves.next(int(t.of.current().ring.Spec.Handover.MaxConcurrentMoves))
	if err == nil {
		if isDone {
			t.queue.Forget(key)
			t.of.succeeded(t, key)
		}
		return true
	}
	t.of.failed(ctx, t, key, err)
	t.queue.AddRateLimited(key)
	return true
}

func keyFor(m *metav1.PartialObjectMetadata) types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
}

// storeKey returns the key that a store has for an object.
func storeKey(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.String()
}
