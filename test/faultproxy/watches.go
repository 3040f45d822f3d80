package faultproxy

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
)

// watches are the open watches of a proxy. The zero value is empty and ready to use.
type watches struct {
	mu   sync.Mutex
	open map[*openWatch]bool
}

// openWatch is a request with an open stream.
type openWatch struct {
	path       string
	cancel     context.CancelFunc
	isAnswered bool
	// ended reports whether the stream ends regularly.
	ended bool
}

// tracking returns a handler that registers its requests while they last.
func (s *watches) tracking(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		one := &openWatch{path: r.URL.Path, cancel: cancel}
		s.add(one)
		defer s.remove(one)
		defer func() {
			failure := recover()
			if err, ok := failure.(error); ok && errors.Is(err, http.ErrAbortHandler) && s.hasEnded(one) {
				return // the proxy aborts interrupted requests
			}
			if failure != nil {
				panic(failure)
			}
		}()
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

// cut ends all watches, abruptly or regularly, and returns their number.
func (s *watches) cut(abruptly bool) int {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	for _, one := range open {
		one.ended = !abruptly
	}
	s.mu.Unlock()
	for _, one := range open {
		one.cancel()
	}
	return len(open)
}

func (s *watches) hasEnded(one *openWatch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return one.ended
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

// noticing is a ResponseWriter that reports the code of the response.
type noticing struct {
	http.ResponseWriter

	notice func(code int)
}

// WriteHeader reports and forwards the code.
func (n *noticing) WriteHeader(code int) {
	n.notice(code)
	n.ResponseWriter.WriteHeader(code)
}

// Unwrap enables http.ResponseController to flush.
func (n *noticing) Unwrap() http.ResponseWriter { return n.ResponseWriter }
