package faultproxy

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Refuse responds to a share of the requests with an error code. It applies 409 only to writes, and
// other codes to all requests.
type Refuse struct {
	// Share is a number from 0 to 1.
	Share float64
	Code  int
}

// Serve implements [Fault].
func (f Refuse) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if rand.Float64() >= f.Share || f.Code == http.StatusConflict && !isWrite(r) {
		next.ServeHTTP(w, r)
		return
	}
	if f.Code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1") // the API server sets it, too, so that the client retries
	}
	answer(w, f.Code, status(f.Code))
}

// GoneWatches responds to watches with 410: sometimes immediately, sometimes in the stream after a
// 200.
type GoneWatches struct{}

// Serve implements [Fault].
func (GoneWatches) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
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

// status returns the API server's error for a code.
func status(code int) metav1.Status {
	reasons := map[int]metav1.StatusReason{
		http.StatusConflict:            metav1.StatusReasonConflict,
		http.StatusForbidden:           metav1.StatusReasonForbidden,
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

// answer writes JSON, which every client of the API server accepts, whatever it requested.
func answer(w http.ResponseWriter, code int, body any) {
	content, err := json.Marshal(body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(content) // if the client is gone, there is no response, which is also a fault
}
