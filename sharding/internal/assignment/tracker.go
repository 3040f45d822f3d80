package assignment

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// kind is one of the resources of a ring, as far as steps depend on it.
type kind struct {
	resource v1alpha1.GroupResource
	// main is the main resource as defined in the ring, or nil if the resource is only a controlled
	// one.
	main     *v1alpha1.Resource
	mapping  *meta.RESTMapping
	keys     keys
	keyLabel string
}

// tracker finds the objects of one resource of a ring that need an action, and performs the next
// step for each. An object that fails does not delay others.
type tracker struct {
	kind

	of    *assigner
	api   api
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	ctx   context.Context //nolint:containedctx // the context of the tracker's goroutines
	stop  context.CancelFunc

	mu      sync.Mutex
	watches watches
	objects map[types.NamespacedName]object

	// closed is set when the tracker is no longer used: its objects must not be counted any more.
	closed atomic.Bool
}

func newTracker(of *assigner, resource v1alpha1.GroupResource, main *v1alpha1.Resource, mapping *meta.RESTMapping) *tracker {
	t := &tracker{
		kind: kind{resource: resource, main: main, mapping: mapping, keys: of.keys},
		of:   of, objects: map[types.NamespacedName]object{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryPeriod, of.SyncPeriod)),
	}
	t.api = server{of.Metadata.Resource(mapping.Resource), t.isClusterScoped()}
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

// change replaces the tracked state of an object.
func (t *tracker) change(key types.NamespacedName, change func(object) object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changeLocked(key, change)
}

func (t *tracker) changeLocked(key types.NamespacedName, change func(object) object) {
	if o := change(t.objects[key]); o.isEmpty() {
		delete(t.objects, key)
	} else {
		t.objects[key] = o
	}
}

// changeChildren replaces the tracked state of the children of a main object.
func (t *tracker) changeChildren(m *metav1.PartialObjectMetadata, change func(childrenMove) childrenMove) {
	t.change(keyFor(m), func(o object) object {
		if o.life.uid == m.UID { // not if the object was created again meanwhile
			o.life.children = change(o.life.children)
		}
		return o
	})
}

// known returns the tracked state of an object.
func (t *tracker) known(key types.NamespacedName) object {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.objects[key]
}

// addFound records an object that a resync has found.
func (t *tracker) addFound(m *metav1.PartialObjectMetadata) {
	t.change(keyFor(m), func(o object) object {
		o.found = m
		return o
	})
	t.queue.Add(keyFor(m))
}

// forgetFound discards an object that a resync has found, and reports whether there was one.
func (t *tracker) forgetFound(key types.NamespacedName) (found bool) {
	isLeft := false
	t.change(key, func(o object) object {
		found = o.found != nil
		o.found = nil
		o = t.settleLocked(key, o)
		isLeft = !o.isEmpty()
		return o
	})
	if found {
		t.of.requestReport()
	}
	if found && isLeft { // what was begun with the object must still end
		t.queue.Add(key)
	}
	return found
}

// settle discards what need not be remembered of an object if no watch covers it any more.
func (t *tracker) settle(key types.NamespacedName) {
	t.change(key, func(o object) object { return t.settleLocked(key, o) })
}

func (t *tracker) settleLocked(key types.NamespacedName, o object) object {
	if o.found != nil || t.watches.find(key) != nil {
		return o
	}
	o.latest = ""
	if t.watches.areComplete() { // it is gone, or at a live shard, which can create more children
		o.life = life{}
	}
	return o
}

// sweep discards what need not be remembered of all objects. What was begun with the others must still
// end, although no watch shows that they have left it.
func (t *tracker) sweep() {
	for _, key := range t.of.moves.keys(t) {
		t.queue.Add(key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range slices.Collect(maps.Keys(t.objects)) {
		t.changeLocked(key, func(o object) object { return t.settleLocked(key, o) })
		if _, isLeft := t.objects[key]; isLeft && t.findLocked(key) == nil {
			t.queue.Add(key)
		}
	}
}

// findLocked returns the newest known version of an object, or nil if the object needs no action. The
// caller must hold the lock.
func (t *tracker) findLocked(key types.NamespacedName) *metav1.PartialObjectMetadata {
	if m := t.watches.find(key); m != nil {
		return m
	}
	return t.objects[key].found
}

// isFor reports whether the resource has this definition of a main resource, which is
// nil for a resource that is only controlled.
func (k *kind) isFor(main *v1alpha1.Resource) bool {
	return equality.Semantic.DeepEqual(k.main, main)
}

// strip returns the part of an object that is kept in memory.
func (k *kind) strip(m *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	return k.keys.strip(k.keyLabel, m)
}

func (k *kind) isClusterScoped() bool { return k.mapping.Scope.Name() == meta.RESTScopeNameRoot }

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
