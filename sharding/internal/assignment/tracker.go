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

// childPeriod is the interval between checks whether a child has moved with the object that
// controls it. Each check is a live read.
const childPeriod = 5 * time.Second

// tracker finds and processes the objects of one resource of a ring that need an action. An object
// that fails does not delay others.
type tracker struct {
	of       *assigner
	resource v1alpha1.GroupResource
	// main is the main resource as defined in the ring, or nil if the resource is only a controlled
	// one.
	main     *v1alpha1.Resource
	mapping  *meta.RESTMapping
	client   metadata.Getter
	keys     keys
	keyLabel string
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	ctx      context.Context //nolint:containedctx // the context of the tracker's goroutines
	stop     context.CancelFunc

	mu       sync.Mutex
	selector string
	orphans  *following
	drains   *following
	// bare covers the objects of a controlled resource that have no label. Policies assign such
	// objects when they are created, but an API server can skip a policy. It includes all objects of
	// the resource outside the ring, so it is not restarted when shards join or die.
	bare *following
	// found are the objects that a resync has found to be misplaced and that no watch covers.
	found map[types.NamespacedName]*metav1.PartialObjectMetadata
	// drained records since when each object has been drained to its current target.
	drained map[types.NamespacedName]drained
	// former records the shards that objects in a hand-over had.
	former map[types.UID]string
	// written records the resourceVersions of the last writes, as long as a watch may show older
	// ones.
	written map[types.NamespacedName]string
	// moved records the objects whose children have moved before them, and attempted the objects
	// whose children have begun to move, both with the target shard.
	moved     map[types.UID]moved
	attempted map[types.UID]attempt
	// released records the objects that a shard has released by removing both labels, as shards of
	// protocol 1 do. Their children follow.
	released map[types.NamespacedName]release

	// closed is set when the tracker is no longer used: its objects must not be counted any more.
	closed atomic.Bool
}

// moved is the location of the children of an object.
type moved struct {
	to string
	// versions are the latest resourceVersions of the children, by resource.
	versions map[string]string
}

// attempt is an attempt to move the children of an object.
type attempt struct {
	to string
	// scattered is set if children may be elsewhere than at their former shard, because an earlier
	// attempt failed or had another target.
	scattered bool
}

type drained struct {
	uid   types.UID
	to    string
	since time.Time
	late  bool
}

// following is a watch with the objects that it covers.
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
		written: map[types.NamespacedName]string{}, attempted: map[types.UID]attempt{}, released: map[types.NamespacedName]release{},
	}
	if main != nil {
		t.keyLabel = main.KeyLabel
	}
	return t
}

// run processes the queue until ctx ends.
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

// retarget makes the tracker watch the objects without a live shard in a view, and the objects in a
// hand-over. All known objects are enqueued.
func (t *tracker) retarget(v *view) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drains == nil {
		t.drains = t.follow(t.keys.drain, t.onDrain)
	}
	selector := t.orphanSelector(v)
	if t.main == nil && t.bare == nil && selector != "" {
		t.bare = t.follow("!"+t.keys.shard, t.onBare)
	}
	if selector != t.selector {
		if t.orphans != nil {
			t.orphans.stop()
			t.orphans = nil
		}
		if t.selector = selector; selector != "" {
			t.orphans = t.follow(selector, t.onOrphan)
		}
	}
	for _, f := range t.followedLocked() {
		for _, object := range f.store.List() {
			if m, ok := object.(*metav1.PartialObjectMetadata); ok && (f != t.bare || t.isControlled(m)) {
				t.queue.Add(keyFor(m))
			}
		}
	}
	for key := range t.found {
		t.queue.Add(key)
	}
}

// followedLocked returns the watches of this resource. The caller must hold the lock.
func (t *tracker) followedLocked() []*following {
	return slices.DeleteFunc([]*following{t.orphans, t.drains, t.bare}, func(f *following) bool { return f == nil })
}

// orphanSelector returns the selector of the objects without a live shard, or "" if there is no
// live shard. For a controlled resource, it excludes objects without a label, which have a watch of
// their own.
func (t *tracker) orphanSelector(v *view) string {
	names := v.liveNames()
	if len(names) == 0 {
		return ""
	}
	selector := t.keys.shard + " notin (" + strings.Join(names, ",") + ")"
	if t.main == nil {
		selector += "," + t.keys.shard
	}
	return selector
}

// follow starts to watch the objects that match a selector. It calls handle with each object that
// changes or stops matching.
func (t *tracker) follow(selector string, handle func(m *metav1.PartialObjectMetadata, exists bool)) *following {
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
			AddFunc:    func(object any) { dispatch(object, true, handle) },
			UpdateFunc: func(_, object any) { dispatch(object, true, handle) },
			DeleteFunc: func(object any) { dispatch(object, false, handle) },
		},
	})
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) { // an empty list causes no event
			t.sweep()
			t.of.requestReport()
		}
	}()
	return &following{store: store, synced: informer.HasSynced, stop: stop}
}

// dispatch passes an event of an informer to a handler.
func dispatch(object any, exists bool, handle func(m *metav1.PartialObjectMetadata, exists bool)) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		handle(m, exists)
	}
}

// onOrphan handles an event of an object that has or had no live shard.
func (t *tracker) onOrphan(m *metav1.PartialObjectMetadata, exists bool) {
	t.of.requestReport()
	switch {
	case !exists:
		t.forgetWrite(keyFor(m))
		if t.isReleased(keyFor(m)) {
			t.queue.Add(keyFor(m))
		}
	case t.main == nil && m.Labels[t.keys.shard] != "":
		t.queue.AddAfter(keyFor(m), childPeriod) // it moves together with the object that controls it
	default:
		t.queue.Add(keyFor(m))
	}
}

// onBare handles an event of an object of a controlled resource that has or had no label.
func (t *tracker) onBare(m *metav1.PartialObjectMetadata, exists bool) {
	if t.isControlled(m) {
		t.onOrphan(m, exists)
	}
}

// isControlled reports whether a main resource of the ring controls an object. Most objects without
// a label may not belong to the ring.
func (t *tracker) isControlled(m *metav1.PartialObjectMetadata) bool {
	return t.of.mainOf(t.resource, metav1.GetControllerOf(m)) != nil
}

// sweep discards the records of writes to objects that no watch covers any more.
func (t *tracker) sweep() {
	t.mu.Lock()
	keys := slices.Collect(maps.Keys(t.written))
	t.mu.Unlock()
	for _, key := range keys {
		t.forgetWrite(key)
	}
}

// forgetWrite discards the record of a write to an object if no watch covers the object any more.
func (t *tracker) forgetWrite(key types.NamespacedName) {
	if t.find(key) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.written, key)
}

// onDrain handles an event of an object that is or was in a hand-over.
func (t *tracker) onDrain(m *metav1.PartialObjectMetadata, exists bool) {
	key := keyFor(m)
	if t.main == nil { // children have no hand-overs of their own
		t.onOrphan(m, exists)
		return
	}
	t.mu.Lock()
	if !exists {
		if shard := m.Labels[t.keys.shard]; shard != "" && len(t.main.ControlledResources) > 0 {
			t.released[key] = release{m.UID, shard} // or the drain was canceled
		}
		if d, ok := t.drained[key]; ok {
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
	t.of.requestReport()
	if exists {
		t.of.moves.begin(t, key)
	} else {
		t.of.moves.end(t, key)
		t.forgetWrite(key)
	}
	t.queue.Add(key)
}

// find returns the latest known version of an object, or nil if the object needs no action.
func (t *tracker) find(key types.NamespacedName) *metav1.PartialObjectMetadata {
	t.mu.Lock()
	defer t.mu.Unlock()
	var newest *metav1.PartialObjectMetadata
	for _, f := range t.followedLocked() {
		if object, exists, err := f.store.GetByKey(storeKey(key)); err == nil && exists {
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

// addFound records an object that a resync has found.
func (t *tracker) addFound(m *metav1.PartialObjectMetadata) {
	t.mu.Lock()
	t.found[keyFor(m)] = m
	t.mu.Unlock()
	t.queue.Add(keyFor(m))
}

// forgetFound discards an object that a resync has found, and reports whether there was one.
func (t *tracker) forgetFound(key types.NamespacedName) (found bool) {
	t.mu.Lock()
	_, found = t.found[key]
	delete(t.found, key)
	t.mu.Unlock()
	if found {
		t.forgetWrite(key)
		t.of.requestReport()
	}
	return found
}

// isFor reports whether the tracker was created for this definition of a main resource, which is
// nil for a resource that is only controlled.
func (t *tracker) isFor(main *v1alpha1.Resource) bool {
	return equality.Semantic.DeepEqual(t.main, main)
}

func (t *tracker) isClusterScoped() bool { return t.mapping.Scope.Name() == meta.RESTScopeNameRoot }

func (t *tracker) processNext(ctx context.Context) bool {
	key, shutdown := t.queue.Get()
	if shutdown {
		return false
	}
	defer t.queue.Done(key)
	if ctx.Err() != nil {
		return false
	}
	done, err := t.process(ctx, key)
	t.of.moves.next(int(t.of.current().ring.Spec.Handover.MaxConcurrentMoves))
	if err == nil {
		if done {
			t.queue.Forget(key)
			t.of.clearFailure(t, key)
		}
		return true
	}
	t.of.handleError(ctx, t, key, err)
	t.queue.AddRateLimited(key)
	return true
}

func keyFor(m *metav1.PartialObjectMetadata) types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
}

// storeKey returns the key of an object in the stores.
func storeKey(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.String()
}
