package assignment

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// moves tracks the objects of a ring that are in a hand-over, and a queue of objects that wait
// because the maximum number is moving. The zero value is ready to use. It is safe for concurrent
// use.
type moves struct {
	mu      sync.Mutex
	active  map[moving]struct{}
	waiting []moving
	// queued is the set of waiting objects, so that each is queued only once.
	queued map[moving]struct{}
}

// moving identifies an object.
type moving struct {
	of  *tracker
	key types.NamespacedName
}

// isFull reports whether an object must not start to move because the maximum number of other
// objects is moving.
func (m *moves) isFull(of *tracker, key types.NamespacedName, limit int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, isActive := m.active[moving{of, key}]
	return !isActive && len(m.active) >= limit
}

// isActive reports whether an object is in a hand-over or has reserved one.
func (m *moves) isActive(of *tracker, key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, isActive := m.active[moving{of, key}]
	return isActive
}

// reserve starts the move of an object. If the maximum number of objects is moving, it queues the
// object and returns false; see next.
func (m *moves) reserve(of *tracker, key types.NamespacedName, limit int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := moving{of, key}
	if _, isActive := m.active[o]; !isActive && len(m.active) >= limit {
		m.wait(o)
		return false
	}
	m.add(o)
	return true
}

// begin records that an object is in a hand-over.
func (m *moves) begin(of *tracker, key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(moving{of, key})
}

// await queues an object; see next.
func (m *moves) await(of *tracker, key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wait(moving{of, key})
}

// end records that an object is no longer in a hand-over.
func (m *moves) end(of *tracker, key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.active, moving{of, key})
}

// next enqueues the first waiting object if it can move. Call it after a move has ended and after a
// waiting object was processed, because that object may not have started a move.
func (m *moves) next(limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 || len(m.active) >= limit {
		return
	}
	next := m.waiting[0]
	m.waiting = m.waiting[1:]
	delete(m.queued, next)
	next.of.queue.Add(next.key)
}

// keys returns the moving objects of a tracker.
func (m *moves) keys(of *tracker) (keys []types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o := range m.active {
		if o.of == of {
			keys = append(keys, o.key)
		}
	}
	return keys
}

// count returns the number of moving objects.
func (m *moves) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.active)
}

// forget closes a tracker and removes its objects.
func (m *moves) forget(of *tracker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of.closed.Store(true)
	for o := range m.active {
		if o.of == of {
			delete(m.active, o)
		}
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(o moving) bool { return o.of == of })
	maps.DeleteFunc(m.queued, func(o moving, _ struct{}) bool { return o.of == of })
}

func (m *moves) add(o moving) {
	if o.of.closed.Load() {
		return
	}
	if m.active == nil {
		m.active = map[moving]struct{}{}
	}
	m.active[o] = struct{}{}
}

func (m *moves) wait(o moving) {
	if _, ok := m.queued[o]; ok || o.of.closed.Load() {
		return
	}
	if m.queued == nil {
		m.queued = map[moving]struct{}{}
	}
	m.queued[o] = struct{}{}
	m.waiting = append(m.waiting, o)
}
