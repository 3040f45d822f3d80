package assignment

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// childPeriod is the interval between checks whether a child has moved with the object that
// controls it. Each check is a live read.
const childPeriod = 5 * time.Second

// watches show the objects of a resource that may need a step. The zero value shows none. It is not
// safe for concurrent use.
type watches struct {
	// orphans covers the objects that match selector: those without a live shard. It is nil if there is
	// no live shard.
	orphans  *following
	selector string
	// scope are the namespaces of the watches that objects outside the ring can match.
	scope []string
	// drains covers the objects in a hand-over.
	drains *following
	// bare covers the objects of a controlled resource that have no label. Policies assign such
	// objects when they are created, but an API server can skip a policy. It can include many objects
	// outside the ring, so it is not restarted when shards join or die.
	bare *following
}

// following is a watch with the objects that it covers, or a watch of each of some namespaces.
type following struct {
	stores []cache.Store
	synced func() bool
	stop   context.CancelFunc
}

// all returns the watches that run.
func (w *watches) all() []*following {
	return slices.DeleteFunc([]*following{w.orphans, w.drains, w.bare}, func(f *following) bool { return f == nil })
}

// find returns the newest version of an object that a watch shows, or nil.
func (w *watches) find(key types.NamespacedName) *metav1.PartialObjectMetadata {
	var newest *metav1.PartialObjectMetadata
	for _, f := range w.all() {
		if m := f.get(key); m != nil && (newest == nil || isLater(m.ResourceVersion, newest.ResourceVersion)) {
			newest = m
		}
	}
	return newest
}

// areComplete reports whether the watches show all objects without a live shard and all objects in a
// hand-over.
func (w *watches) areComplete() bool { return w.orphans != nil && w.drains != nil && w.areSynced() }

// areSynced reports whether the initial lists of all watches are complete.
func (w *watches) areSynced() bool {
	return !slices.ContainsFunc(w.all(), func(f *following) bool { return !f.synced() })
}

// get returns the version of an object that the watch shows, or nil.
func (f *following) get(key types.NamespacedName) *metav1.PartialObjectMetadata {
	for _, store := range f.stores {
		object, _, err := store.GetByKey(storeKey(key))
		if m, ok := object.(*metav1.PartialObjectMetadata); err == nil && ok {
			return m
		}
	}
	return nil
}

// list returns the objects that the watch shows.
func (f *following) list() []*metav1.PartialObjectMetadata {
	var all []*metav1.PartialObjectMetadata
	for _, store := range f.stores {
		for _, object := range store.List() {
			if m, ok := object.(*metav1.PartialObjectMetadata); ok {
				all = append(all, m)
			}
		}
	}
	return all
}

// retarget makes the tracker watch the objects without a live shard in a view, and the objects in a
// hand-over. All known objects are enqueued.
func (t *tracker) retarget(v *view) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &t.watches
	if w.drains == nil {
		w.drains = t.watch(everywhere, t.keys.drain, t.onDrain)
	}
	t.watchOrphans(v)
	for _, f := range w.all() {
		for _, m := range f.list() {
			if f != w.bare || t.isControlled(m) {
				t.queue.Add(keyFor(m))
			}
		}
	}
	for key, o := range t.objects {
		if o.found != nil {
			t.queue.Add(key)
		}
	}
}

// watchOrphans makes the tracker watch the objects without a live shard in a view. The caller must
// hold the lock.
func (t *tracker) watchOrphans(v *view) {
	w := &t.watches
	selector, scope := t.orphanSelector(v), t.scope(v)
	isRescoped := !slices.Equal(scope, w.scope)
	if w.scope = scope; isRescoped && w.bare != nil {
		w.bare.stop()
		w.bare = nil
	}
	if t.main == nil {
		if w.bare == nil && selector != "" {
			w.bare = t.watch(scope, "!"+t.keys.shard, t.onBare)
		}
		scope, isRescoped = everywhere, false // only objects with a label match the selector
	}
	if selector == w.selector && !isRescoped {
		return
	}
	if w.orphans != nil {
		w.orphans.stop()
		w.orphans = nil
	}
	if w.selector = selector; selector != "" {
		w.orphans = t.watch(scope, selector, t.onOrphan)
	}
}

// everywhere is the scope of a watch of all namespaces.
var everywhere = []string{metav1.NamespaceAll}

// maxScope is the maximum number of namespaces that have watches of their own. A watch of all
// namespaces receives each change of each object outside the ring; each further watch costs the API
// server and this process some memory.
const maxScope = 10

// scope returns the namespaces of the ring if they are few, and otherwise all. Objects with a label in
// a namespace that has left the ring are found by a resync.
func (t *tracker) scope(v *view) []string {
	names, isKnown := v.selection.Namespaces()
	if !isKnown || len(names) > maxScope || t.isClusterScoped() {
		return everywhere
	}
	return names
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

// watch starts to watch the objects in some namespaces that match a selector. It calls handle with
// each object that changes or stops matching.
func (t *tracker) watch(namespaces []string, selector string, handle func(m *metav1.PartialObjectMetadata, exists bool)) *following {
	return t.api.follow(t.ctx, namespaces, selector, t.strip, handle, func() { // an empty list causes no event
		t.sweep()
		t.of.requestReport()
	})
}

// onOrphan handles an event of an object that has or had no live shard.
func (t *tracker) onOrphan(m *metav1.PartialObjectMetadata, exists bool) {
	t.of.requestReport()
	switch {
	case !exists:
		t.settle(keyFor(m))
		if t.known(keyFor(m)).released.shard != "" || t.of.moves.isActive(t, keyFor(m)) {
			t.queue.Add(keyFor(m))
		}
	case t.main == nil && m.Labels[t.keys.shard] != "":
		t.queue.AddAfter(keyFor(m), childPeriod) // it moves together with the object that controls it
	default:
		t.countLeft(m)
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

// onDrain handles an event of an object that is or was in a hand-over.
func (t *tracker) onDrain(m *metav1.PartialObjectMetadata, exists bool) {
	if t.main == nil { // children have no hand-overs of their own
		t.onOrphan(m, exists)
		return
	}
	key := keyFor(m)
	if exists {
		isOfDead := false
		t.change(key, func(o object) object {
			o = o.drained(m.Labels[t.keys.drain], m.UID, t.of.now())
			isOfDead = o.life.isOfDead()
			return o
		})
		if !isOfDead { // objects of dead shards must not wait for others, nor others for them
			t.of.moves.begin(t, key)
		}
	} else {
		t.endDrain(m)
		t.of.moves.end(t, key)
		t.settle(key)
	}
	t.of.requestReport()
	t.queue.Add(key)
}

// endDrain records that an object is not in a hand-over any more.
func (t *tracker) endDrain(m *metav1.PartialObjectMetadata) {
	t.change(keyFor(m), func(o object) object {
		if shard := m.Labels[t.keys.shard]; shard != "" && len(t.main.ControlledResources) > 0 {
			o.released = release{m.UID, shard} // or the drain was canceled
		}
		if since := o.lifeOf(m.UID).drain.since; !since.IsZero() {
			t.of.metrics.handovers.WithLabelValues(t.of.name).Observe(t.of.now().Sub(since).Seconds())
		}
		return o.undrained(m.UID)
	})
}

// isDraining reports whether the watch shows an object in a hand-over.
func (t *tracker) isDraining(key types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches.drains != nil && t.watches.drains.get(key) != nil
}

// isParked reports whether the watch shows an object in a hand-over that no shard has.
func (t *tracker) isParked(key types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches.drains == nil {
		return false
	}
	m := t.watches.drains.get(key)
	return m != nil && m.Labels[t.keys.shard] == ""
}

// storeKey returns the key of an object in the stores.
func storeKey(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.String()
}
