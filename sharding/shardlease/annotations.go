package shardlease

import (
	"maps"
	"sync"

	"nodekeeper.dev/internal/daemon/signal"
)

// annotations are the ones that a Lease must have. They are safe for concurrent use.
type annotations struct {
	changed signal.Signal // receives a value when they change

	mu      sync.Mutex
	desired map[string]string
}

func newAnnotations(initial map[string]string) annotations {
	return annotations{changed: signal.New(), desired: maps.Clone(initial)}
}

// set sets an annotation; an empty value removes it.
func (a *annotations) set(key, value string) {
	a.mu.Lock()
	if value == "" {
		delete(a.desired, key)
	} else {
		a.desired[key] = value
	}
	a.mu.Unlock()
	a.changed.Send()
}

// all returns a copy of the annotations.
func (a *annotations) all() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.desired)
}
