package faultproxy

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
)

// watches are the open watches of a proxy. The zero value has none.
type watches struct {
	mu   sync.Mutex
	open map[*openWatch]bool
}

// openWatch is one request whose answer is a stream.
type openWatch struct {
	path       string
	cancel     context.CancelFunc
	isAnswered bool
}

// tracking returns a handler that has its requests in the watches while they last.
func (s *watches) tracking(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		one := &openWatch{path: r.URL.Path, cancel: cancel}
		s.add(one)
		defer s.remove(one)
		next.ServeHTTP(&noticing{ResponseWriter: w, notice: func(code int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			one.isAnswered = code == http.StatusOK
		}}, r.WithContext(ctx))
	})
}

func (s *watches) add(one *openWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*openWatch]bool{}
	}
	s.open[one] = true
}

func (s *watches) remove(one *openWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, one)
}

func (s *watches) cut() {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, one := range open {
		one.cancel()
	}
}

func (s *watches) has(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.open {
		if one.path == path && one.isAnswered {
			return true
		}
	}
	return false
}

// noticing is a ResponseWriter that tells the code of the answer.
type noticing struct {
	http.ResponseWriter

	notice func(code int)
}

// WriteHeader tells the code and passes it on.
func (n *noticing) WriteHeader(code int) {
	n.notice(code)
	n.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController flush.
func (n *noticing) Unwrap() http.ResponseWriter { return n.ResponseWriter }
