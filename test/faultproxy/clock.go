package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// SkewClock simulates a wall clock of the program that is ahead of the others by By, as far as
// Leases show it: times that the program writes to Leases are shifted by By, and times that it
// reads from Leases are shifted back. The clock does not run faster or slower. Times in other
// objects do not change, since they do not influence any decision. Leases in watches do not change,
// either: members of a ring watch Leases, but measure time by their own clock.
type SkewClock struct {
	By time.Duration
}

// Serve implements [Fault].
func (s SkewClock) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if !strings.HasPrefix(r.URL.Path, "/apis/coordination.k8s.io/") || isWatch(r) {
		next.ServeHTTP(w, r)
		return
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	sent = moved(sent, s.By)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(sent)), int64(len(sent))
	r.Header.Set("Content-Length", strconv.Itoa(len(sent)))
	r.Header.Del("Accept-Encoding") // so that the response can be decoded

	got := &recorded{header: w.Header()}
	next.ServeHTTP(got, r)
	w.Header().Del("Content-Length")
	w.WriteHeader(got.code)
	_, _ = w.Write(moved(got.body.Bytes(), -s.By)) // if the client is gone, there is no response
}

// DateAhead makes the clock of the API server appear to be ahead of that of the program by By, as far
// as the Date header shows it. Times in objects do not change.
type DateAhead struct {
	By time.Duration
}

// Serve implements [Fault].
func (d DateAhead) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	next.ServeHTTP(dated{w, d.By}, r)
}

// dated is a ResponseWriter whose Date header is ahead.
type dated struct {
	http.ResponseWriter
	by time.Duration
}

// WriteHeader forwards the code.
func (d dated) WriteHeader(code int) {
	d.Header().Set("Date", time.Now().Add(d.by).UTC().Format(http.TimeFormat))
	d.ResponseWriter.WriteHeader(code)
}

// Unwrap lets watches flush each event.
func (d dated) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// recorded is a ResponseWriter that keeps the response.
type recorded struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorded) Header() http.Header { return r.header }

// Write implements http.ResponseWriter.
func (r *recorded) Write(body []byte) (int, error) { return r.body.Write(body) }

// WriteHeader implements http.ResponseWriter.
func (r *recorded) WriteHeader(code int) { r.code = code }

// moved returns the body with the times of its Leases shifted. It returns other bodies unchanged.
func moved(body []byte, by time.Duration) []byte {
	obj, err := decode(body)
	if err != nil {
		return body
	}
	switch obj := obj.(type) {
	case *coordinationv1.Lease:
		move(obj, by)
	case *coordinationv1.LeaseList:
		for i := range obj.Items {
			move(&obj.Items[i], by)
		}
	default:
		return body
	}
	encoded, err := encode(obj, body)
	if err != nil {
		return body
	}
	return encoded
}

func move(l *coordinationv1.Lease, by time.Duration) {
	for _, t := range []*metav1.MicroTime{l.Spec.AcquireTime, l.Spec.RenewTime} {
		if t != nil {
			t.Time = t.Add(by)
		}
	}
	for _, f := range l.ManagedFields { // programs read the time of the last write from it
		if f.Time != nil {
			f.Time.Time = f.Time.Add(by)
		}
	}
}

func decode(body []byte) (runtime.Object, error) {
	if len(body) == 0 {
		return nil, errors.New("empty")
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	return obj, err
}

// encode encodes an object in the format of the original.
func encode(obj runtime.Object, original []byte) ([]byte, error) {
	mediaType := runtime.ContentTypeJSON
	if bytes.HasPrefix(original, []byte("k8s\x00")) {
		mediaType = runtime.ContentTypeProtobuf
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, errors.New("no serializer of " + mediaType)
	}
	return runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, coordinationv1.SchemeGroupVersion), obj)
}
