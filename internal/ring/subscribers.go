package ring

import "sync"

// subscribers are told that something has changed. The zero value has none. It is safe for
// concurrent use.
type subscribers struct {
	mu  sync.Mutex
	all []chan struct{}
}

// add returns the channel of another subscriber.
func (s *subscribers) add() <-chan struct{} {
	ch := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, ch)
	return ch
}

// tell tells all subscribers.
func (s *subscribers) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range s.all {
		poke(ch)
	}
}

// poke sends without blocking: a receiver that has not received the last one yet is told already.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
