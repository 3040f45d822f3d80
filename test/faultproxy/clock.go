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

// SkewClock makes the program's clock differ from that of the others in what it says of Leases: the times that it
// writes are moved by By, and those that it reads are moved back. That is what it and the others would see if its wall
// clock were ahead by By. It is not a clock that goes faster or slower, and times elsewhere, which decide nothing,
// stay as they are. Leases that a watch brings are not moved: members of a ring watch Leases, but count their own time of what they see.
type SkewClock struct {
	By time.Duration
}

// Serve is [Fault]'s.
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
	r.Header.Del("Accept-Encoding") // so that the answer can be read

	got := &recorded{header: w.Header()}
	next.ServeHTTP(got, r)
	w.Header().Del("Content-Length")
	w.WriteHeader(got.code)
	_, _ = w.Write(moved(got.body.Bytes(), -s.By)) // who does not read it gets no answer
}

// recorded keeps an answer.
type recorded struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header is http.ResponseWriter's.
func (r *recorded) Header() http.Header { return r.header }

// Write is http.ResponseWriter's.
func (r *recorded) Write(body []byte) (int, error) { return r.body.Write(body) }

// WriteHeader is http.ResponseWriter's.
func (r *recorded) WriteHeader(code int) { r.code = code }

// moved returns the body with the times of its Leases moved; what holds no Leases stays as it is.
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
	for _, f := range l.ManagedFields { // by which a program knows when a Lease was last written
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

// encode writes an object in the form that the original has.
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
