package assignment

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// moves are the objects of a ring that are in a hand-over, and those that wait for one because there are
// too many. The zero value has none. It is safe for concurrent use.
type moves struct {
	mu      sync.Mutex
	active  map[moving]struct{}
	waiting []moving
	// isWaiting has those that wait, so that each does once.
	isWaiting map[moving]struct{}
}

// moving is an object.
type moving struct {
	of  *tracker
	key types.NamespacedName
}

// isFull reports whether an object cannot begin to move, as too many others do. One that is already moving
// is never refused.
func (m *moves) isFull(of *tracker, key types.NamespacedName, limit int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, isActive := m.active[moving{of, key}]
	return !isActive && len(m.active) >= limit
}

// isActive reports whether an object is in a hand-over, or is about to be.
func (m *moves) isActive(of *tracker, key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, isActive := m.active[moving{of, key}]
	return isActive
}

// reserve begins the move of an object. It reports false if too many move: then the object waits, see next.
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

// begin notes that an object is in a hand-over.
func (m *moves) begin(of *tracker, key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(moving{of, key})
}

// await makes an object wait, see next.
func (m *moves) await(of *tracker, key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wait(moving{of, key})
}

// end notes that an object is in no hand-over any more.
func (m *moves) end(of *tracker, key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.active, moving{of, key})
}

// next enqueues an object that waits, if it can move. Call it after a move has ended, and after an object
// that waited was processed: it may not have taken its place.
func (m *moves) next(limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 || len(m.active) >= limit {
		return
	}
	next := m.waiting[0]
	m.waiting = m.waiting[1:]
	delete(m.isWaiting, next)
	next.of.queue.Add(next.key)
}

// count returns how many objects move.
func (m *moves) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.active)
}

// forget closes a tracker, and ends what moves of it.
func (m *moves) forget(of *tracker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of.isClosed.Store(true)
	for o := range m.active {
		if o.of == of {
			delete(m.active, o)
		}
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(o moving) bool { return o.of == of })
	maps.DeleteFunc(m.isWaiting, func(o moving, _ struct{}) bool { return o.of == of })
}

func (m *moves) add(o moving) {
	if o.of.isClosed.Load() {
		return
	}
	if m.active == nil {
		m.active = map[moving]struct{}{}
	}
	m.active[o] = struct{}{}
}

func (m *moves) wait(o moving) {
	if _, ok := m.isWaiting[o]; ok || o.of.isClosed.Load() {
		return
	}
	if m.isWaiting == nil {
		m.isWaiting = map[moving]struct{}{}
	}
	m.isWaiting[o] = struct{}{}
	m.waiting = append(m.waiting, o)
}
