package ring

import "sync"

// subscribers are notified of changes. The zero value has none. It is safe for concurrent use.
type subscribers struct {
	mu  sync.Mutex
	all []chan struct{}
}

// add adds a subscriber and returns its channel.
func (s *subscribers) add() <-chan struct{} {
	ch := make(chan struct{}, 1)
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
		signal(ch)
	}
}

// signal sends without blocking: if the receiver has not received the last signal yet, it is
// notified already.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
