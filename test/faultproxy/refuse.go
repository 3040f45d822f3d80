package faultproxy

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Refuse answers a share of the requests in place of the API server: 409 those that write, any other code all.
type Refuse struct {
	// Share is between 0 and 1.
	Share float64
	Code  int
}

// Serve is [Fault]'s.
func (f Refuse) Serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if rand.Float64() >= f.Share || f.Code == http.StatusConflict && !isWrite(r) {
		next.ServeHTTP(w, r)
		return
	}
	if f.Code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1") // as the API server does, so that the client tries again by itself
	}
	answer(w, f.Code, status(f.Code))
}

// GoneWatches answers watches with 410: some at once, others after the 200 that begins the stream.
type GoneWatches struct{}

// Serve is [Fault]'s.
func (GoneWatches) Serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	switch gone := status(http.StatusGone); {
	case !isWatch(r):
		next.ServeHTTP(w, r)
	case rand.IntN(2) == 0:
		answer(w, http.StatusGone, gone)
	default:
		answer(w, http.StatusOK, struct {
			Type   watch.EventType `json:"type"`
			Object metav1.Status   `json:"object"`
		}{watch.Error, gone})
	}
}

// status is the error that the API server gives with a code.
func status(code int) metav1.Status {
	reasons := map[int]metav1.StatusReason{
		http.StatusConflict:            metav1.StatusReasonConflict,
		http.StatusGone:                metav1.StatusReasonExpired,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
		http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	}
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Reason:   reasons[code],
		Code:     int32(code),
		Message:  "injected by the fault proxy: " + http.StatusText(code),
	}
}

// answer writes JSON, which every client of the API server reads, whatever it asked for.
func answer(w http.ResponseWriter, code int, body any) {
	content, err := json.Marshal(body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(content) // who does not read it gets no answer, which is a fault too
}
