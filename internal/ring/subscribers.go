package ring

import (
	"sync"

	"nodekeeper.dev/internal/daemon/signal"
)

// subscribers are notified of changes. The zero value has none. It is safe for concurrent use.
type subscribers struct {
	mu  sync.Mutex
	all []signal.Signal
}

// add adds a subscriber and returns its channel.
func (s *subscribers) add() <-chan struct{} {
	ch := signal.New()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, ch)
	return ch
}

// notify notifies all subscribers.
func (s *subscribers) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range s.all {
		ch.Send()
	}
}
