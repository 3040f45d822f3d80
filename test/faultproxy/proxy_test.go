package faultproxy_test

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"nodekeeper.dev/test/faultproxy"
)

// patience bounds the wait for an expected state. It is long, so that tests pass on a busy machine.
const patience = 3 * time.Minute

// apiServer implements the part of an API server that these tests need: it stores nothing and
// counts writes.
type apiServer struct {
	writes atomic.Int32
	renew  atomic.Value // the renewTime of the last written Lease
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Query().Get("watch") != "":
		_, _ = w.Write([]byte(`{"type":"BOOKMARK","object":{"kind":"Node","apiVersion":"v1","metadata":{"resourceVersion":"1"}}}` + "\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodGet:
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`))
	default:
		s.writes.Add(1)
		s.echo(w, r)
	}
}

// echo responds with the Lease in the request, if there is one.
func (s *apiServer) echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	var lease coordinationv1.Lease
	if runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, &lease) == nil {
		s.renew.Store(lease.Spec.RenewTime.UTC())
	}
	_, _ = w.Write(body)
}

// start starts a server and a proxy for it, and returns a client that uses the proxy.
func start(t *testing.T) (*apiServer, *faultproxy.Proxy, kubernetes.Interface) {
	t.Helper()
	s := &apiServer{}
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	cfg := &rest.Config{Host: server.URL}
	cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	proxy, err := faultproxy.Start(cfg)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	return s, proxy, clientOf(t, proxy)
}

// clientOf returns a client that uses a proxy, with its own connection.
func clientOf(t *testing.T, proxy *faultproxy.Proxy) kubernetes.Interface {
	t.Helper()
	through, err := clientcmd.NewDefaultClientConfig(proxy.Kubeconfig(), nil).ClientConfig()
	require.NoError(t, err)
	through.Timeout = patience
	through.Dial = (&net.Dialer{}).DialContext // clients with the same Dial share a connection
	return kubernetes.NewForConfigOrDie(through)
}

func read(t *testing.T, c kubernetes.Interface) error {
	t.Helper()
	_, err := c.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	return err
}

func write(t *testing.T, c kubernetes.Interface) error {
	t.Helper()
	_, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	return err
}

func TestProxyForwards(t *testing.T) {
	s, _, c := start(t)
	require.NoError(t, read(t, c))
	require.NoError(t, write(t, c))
	assert.EqualValues(t, 1, s.writes.Load())
}

func TestRefuseAnswersInPlaceOfTheServerUntilHealed(t *testing.T) {
	s, proxy, c := start(t)
	heal := proxy.Inject(faultproxy.Refuse{Share: 1, Code: http.StatusConflict})
	require.NoError(t, read(t, c), "what only reads has no conflicts")
	require.True(t, apierrors.IsConflict(write(t, c)))
	heal()
	heal = proxy.Inject(faultproxy.Refuse{Share: 1, Code: http.StatusServiceUnavailable})
	require.True(t, apierrors.IsServiceUnavailable(read(t, c)))
	heal()
	assert.Zero(t, s.writes.Load())
	require.NoError(t, write(t, c))
}

func TestDropAnswersLosesOnlyAnswersOfWrites(t *testing.T) {
	s, proxy, c := start(t)
	proxy.Inject(faultproxy.DropAnswers{Share: 1})
	require.NoError(t, read(t, c))
	require.Error(t, write(t, c))
	assert.EqualValues(t, 1, s.writes.Load())
}

func TestDelayHoldsAnswersBack(t *testing.T) {
	_, proxy, c := start(t)
	proxy.Inject(faultproxy.Delay{Share: 1, For: 300 * time.Millisecond})
	began := time.Now()
	require.NoError(t, read(t, c))
	assert.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
}

func TestHealedDelayHoldsNothingBackInAnOpenWatch(t *testing.T) {
	_, proxy, c := start(t)
	heal := proxy.Inject(faultproxy.Delay{Share: 1, For: time.Hour})
	time.AfterFunc(100*time.Millisecond, heal)
	w, err := c.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{AllowWatchBookmarks: true})
	require.NoError(t, err)
	assert.Equal(t, watch.Bookmark, next(t, w).Type)
}

func TestServerThatIsAwayGivesNoAnswer(t *testing.T) {
	proxy, err := faultproxy.Start(&rest.Config{Host: "https://127.0.0.1:1"})
	require.NoError(t, err)
	defer proxy.Close()
	cfg, err := clientcmd.NewDefaultClientConfig(proxy.Kubeconfig(), nil).ClientConfig()
	require.NoError(t, err)
	err = read(t, kubernetes.NewForConfigOrDie(cfg))
	var status apierrors.APIStatus
	require.Error(t, err)
	assert.NotErrorAs(t, err, &status)
}

func TestCutWatchesEndsThem(t *testing.T) {
	_, proxy, c := start(t)
	assert.False(t, proxy.Watching("nodes"))
	w, err := c.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{AllowWatchBookmarks: true})
	require.NoError(t, err)
	assert.Equal(t, watch.Bookmark, next(t, w).Type)
	assert.True(t, proxy.Watching("nodes"))
	proxy.CutWatches()
	for range w.ResultChan() {
		continue // wait for the end of the stream
	}
	assert.Eventually(t, func() bool { return !proxy.Watching("nodes") }, patience, 10*time.Millisecond)
}

func TestGoneWatchesAreGoneOneWayOrTheOther(t *testing.T) {
	_, proxy, c := start(t)
	proxy.Inject(faultproxy.GoneWatches{})
	refused, ended := 0, 0
	for refused == 0 || ended == 0 {
		w, err := c.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			require.True(t, apierrors.IsResourceExpired(err), "%v", err)
			refused++
			continue
		}
		e := next(t, w)
		require.True(t, apierrors.IsResourceExpired(apierrors.FromObject(e.Object)), "%v", e)
		w.Stop()
		ended++
	}
}

func TestSkewClockMovesTheTimesOfLeasesThereAndBack(t *testing.T) {
	s, proxy, c := start(t)
	proxy.Inject(faultproxy.SkewClock{By: time.Hour})
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	lease.Spec.RenewTime = &now
	got, err := c.CoordinationV1().Leases("ns").Create(t.Context(), lease, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.WithinDuration(t, now.Time, got.Spec.RenewTime.Time, time.Millisecond, "what the program reads")
	assert.WithinDuration(t, now.Add(time.Hour), s.renew.Load().(time.Time), time.Millisecond, "what the others read")
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case e := <-w.ResultChan():
		return e
	case <-ctx.Done():
		require.Fail(t, "the watch delivers nothing")
		return watch.Event{}
	}
}

// Running programs reopen their watches until the proxy is closed.
func TestCloseEndsWatchesThatAreOpenedMeanwhile(t *testing.T) {
	for range 50 {
		_, proxy, _ := start(t)
		ctx, cancel := context.WithCancel(t.Context())
		var programs sync.WaitGroup
		for range 8 {
			c := clientOf(t, proxy)
			programs.Go(func() {
				for ctx.Err() == nil {
					if w, err := c.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{}); err == nil {
						for range w.ResultChan() {
						}
					}
				}
			})
		}
		require.Eventually(t, func() bool { return proxy.Watching("nodes") }, patience, time.Millisecond)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			proxy.Close()
		}()
		select {
		case <-closed:
		case <-time.After(patience):
			assert.Fail(t, "a watch is still open")
		}
		cancel()
		programs.Wait()
		<-closed
	}
}
