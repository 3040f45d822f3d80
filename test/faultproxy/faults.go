package faultproxy

import (
	"math/rand/v2"
	"net/http"
	"time"
)

// Delay delays a share of the responses, and each part of a watch. Writes have their effect without
// delay, but the program learns of it late.
type Delay struct {
	// Share is a number from 0 to 1.
	Share float64
	For   time.Duration
}

// Serve implements [Fault].
func (d Delay) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, healed <-chan struct{}) {
	if rand.Float64() < d.Share {
		w = &late{ResponseWriter: w, request: r, delay: d.For, healed: healed}
	}
	next.ServeHTTP(w, r)
}

// late is a ResponseWriter that delays the header and, in a watch, every part of the body.
type late struct {
	http.ResponseWriter

	request *http.Request
	delay   time.Duration
	healed  <-chan struct{}
}

// WriteHeader forwards the code after a delay.
func (l *late) WriteHeader(code int) {
	l.wait()
	l.ResponseWriter.WriteHeader(code)
}

// Write forwards the body, after a delay if it belongs to a watch.
func (l *late) Write(body []byte) (int, error) {
	if isWatch(l.request) {
		l.wait()
	}
	return l.ResponseWriter.Write(body)
}

// Unwrap enables http.ResponseController to flush.
func (l *late) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *late) wait() {
	timer := time.NewTimer(l.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.healed:
	case <-l.request.Context().Done(): // the client is gone
	}
}

// DropAnswers forwards a share of the writes and drops their responses, so that the program cannot
// know whether they had an effect.
type DropAnswers struct {
	// Share is a number from 0 to 1.
	Share float64
}

// Serve implements [Fault].
func (d DropAnswers) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if !isWrite(r) || rand.Float64() >= d.Share {
		next.ServeHTTP(w, r)
		return
	}
	next.ServeHTTP(nowhere{}, r)
	panic(http.ErrAbortHandler)
}

// nowhere is a ResponseWriter that discards everything.
type nowhere struct{}

// Header implements http.ResponseWriter.
func (nowhere) Header() http.Header { return http.Header{} }

// Write implements http.ResponseWriter.
func (nowhere) Write(body []byte) (int, error) { return len(body), nil }

// WriteHeader implements http.ResponseWriter.
func (nowhere) WriteHeader(int) {}
