package controller

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// version is a version of an object, with the parsed form of it. It is immutable.
type version[P any] struct {
	name            string
	resourceVersion string
	uid             types.UID
	// at is when the version was first seen, by the clock of this process.
	at     time.Time
	parsed P
}

// store has the newest known version of each object of one kind: what the watch has delivered,
// and what this process has written. It is the store of a reflector, and safe for concurrent use.
type store[P any] struct {
	parse func(metav1.Object) P
	// matters reports whether a change needs a pass. If nil, every change does.
	matters func(before, after *version[P]) bool
	changed func()
	// compare is called with the resourceVersions of two states of all objects. It ends the process
	// if the second one is lower.
	compare func(before, after string) error

	mu      sync.Mutex
	objects map[string]*version[P] // by name; all are in one namespace
	latest  string                 // resourceVersion up to which the watch has delivered everything
	deleted map[types.UID]bool     // objects whose deletion the watch has delivered
}

// GetObjectMeta lets a reflector collect versions in place of objects.
func (v *version[P]) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: v.name, UID: v.uid, ResourceVersion: v.resourceVersion}
}

var (
	_ cache.ReflectorStore    = (*store[int])(nil)
	_ cache.TransformingStore = (*store[int])(nil)
)

// isNewer reports whether a resourceVersion is higher than another one.
func isNewer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

// all returns the newest versions by name.
func (s *store[P]) all() map[string]*version[P] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objects)
}

// synced reports whether the first list has been delivered.
func (s *store[P]) synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest != ""
}

// isDeleted reports whether the deletion of an object was delivered.
func (s *store[P]) isDeleted(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deleted[uid]
}

// forget forgets deletions.
func (s *store[P]) forget(isNeeded func(types.UID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.deleted {
		if !isNeeded(uid) {
			delete(s.deleted, uid)
		}
	}
}

// wrote records the answer to a write or a live read of this process, and returns the newest
// version. If the watch has already delivered later changes, the answer is old.
func (s *store[P]) wrote(o metav1.Object) *version[P] {
	answer := s.version(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != "" && !isNewer(answer.resourceVersion, s.latest) {
		return s.objects[answer.name]
	}
	newest, _ := s.putLocked(answer)
	return newest
}

// version parses an object.
func (s *store[P]) version(o metav1.Object) *version[P] {
	return &version[P]{name: o.GetName(), resourceVersion: o.GetResourceVersion(), uid: o.GetUID(), at: time.Now(), parsed: s.parse(o)}
}

// Transformer implements cache.TransformingStore. So a reflector that gets all objects one after the
// other does not hold all of them at once, before it passes them on.
func (s *store[P]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		o, err := meta.Accessor(obj)
		if err != nil {
			return nil, fmt.Errorf("reading a watch: %w", err)
		}
		return s.version(o), nil
	}
}

// putLocked stores a version unless a newer one is there. It returns the newest version, and
// whether a change that matters was stored.
func (s *store[P]) putLocked(v *version[P]) (newest *version[P], matters bool) {
	before := s.objects[v.name]
	if before != nil && !isNewer(v.resourceVersion, before.resourceVersion) {
		return before, false
	}
	s.objects[v.name] = v
	return v, before == nil || s.matters == nil || before.uid != v.uid || s.matters(before, v)
}

// deliver stores a version that the watch has delivered.
func (s *store[P]) deliver(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("reading a watch: %w", err)
	}
	v := s.version(o)
	s.mu.Lock()
	s.latest = v.resourceVersion
	_, matters := s.putLocked(v)
	s.mu.Unlock()
	if matters {
		s.changed()
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (s *store[P]) Add(obj any) error { return s.deliver(obj) }

// Update implements cache.ReflectorStore.
func (s *store[P]) Update(obj any) error { return s.deliver(obj) }

// Delete implements cache.ReflectorStore.
func (s *store[P]) Delete(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("reading a watch: %w", err)
	}
	s.mu.Lock()
	s.latest = o.GetResourceVersion()
	s.deleted[o.GetUID()] = true
	if now := s.objects[o.GetName()]; now != nil && !isNewer(now.resourceVersion, o.GetResourceVersion()) {
		delete(s.objects, o.GetName())
	}
	s.mu.Unlock()
	s.changed()
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store[P]) Replace(list []any, resourceVersion string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != "" {
		_ = s.compare(s.latest, resourceVersion) // the list is right in any case
	}
	s.latest = resourceVersion
	listed := make(map[string]bool, len(list))
	for _, obj := range list {
		v, isParsed := obj.(*version[P])
		if !isParsed {
			o, err := meta.Accessor(obj)
			if err != nil {
				return fmt.Errorf("reading a list: %w", err)
			}
			v = s.version(o)
		}
		listed[v.name] = true
		// The list is right even if it has an older version, as after a restore of etcd. Only what
		// was written after the list is not in it.
		if before := s.objects[v.name]; before != nil && !isNewer(before.resourceVersion, resourceVersion) && before.resourceVersion != v.resourceVersion {
			delete(s.objects, v.name)
		}
		s.putLocked(v)
	}
	for name, v := range s.objects {
		if !listed[name] && !isNewer(v.resourceVersion, resourceVersion) {
			delete(s.objects, name)
		}
	}
	s.changed()
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *store[P]) Bookmark(resourceVersion string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = resourceVersion
	return nil
}

// Resync implements cache.ReflectorStore. There is nothing to do.
func (s *store[P]) Resync() error { return nil }
