package faultproxy

import (
	"math/rand/v2"
	"net/http"
	"time"
)

// Delay holds a share of the answers back, and each part of a watch: what was written is written, but the program does
// not know for a while.
type Delay struct {
	// Share is between 0 and 1.
	Share float64
	For   time.Duration
}

// Serve is [Fault]'s.
func (d Delay) Serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if rand.Float64() < d.Share {
		w = &late{ResponseWriter: w, request: r, delay: d.For}
	}
	next.ServeHTTP(w, r)
}

// late is a ResponseWriter whose header waits, and in a watch every part of the body.
type late struct {
	http.ResponseWriter

	request *http.Request
	delay   time.Duration
}

// WriteHeader passes the code on, late.
func (l *late) WriteHeader(code int) {
	l.wait()
	l.ResponseWriter.WriteHeader(code)
}

// Write passes the body on, late if it is that of a watch.
func (l *late) Write(body []byte) (int, error) {
	if isWatch(l.request) {
		l.wait()
	}
	return l.ResponseWriter.Write(body)
}

// Unwrap lets http.ResponseController flush.
func (l *late) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *late) wait() {
	timer := time.NewTimer(l.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.request.Context().Done(): // nobody waits for the answer any more
	}
}

// DropAnswers lets a share of the writes through and loses the answers: the program cannot know whether they happened.
type DropAnswers struct {
	// Share is between 0 and 1.
	Share float64
}

// Serve is [Fault]'s.
func (d DropAnswers) Serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !isWrite(r) || rand.Float64() >= d.Share {
		next.ServeHTTP(w, r)
		return
	}
	next.ServeHTTP(nowhere{}, r)
	panic(http.ErrAbortHandler)
}

// nowhere is a ResponseWriter of which nothing arrives.
type nowhere struct{}

// Header is http.ResponseWriter's.
func (nowhere) Header() http.Header { return http.Header{} }

// Write is http.ResponseWriter's.
func (nowhere) Write(body []byte) (int, error) { return len(body), nil }

// WriteHeader is http.ResponseWriter's.
func (nowhere) WriteHeader(int) {}
