package program

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/programs"
)

// late keeps the first write to a path back until it is released. It reaches the API server then,
// even if the client does not wait for it any longer.
type late struct {
	path     string // how it ends
	once     sync.Once
	kept     chan struct{} // closed when the write is kept back
	released chan struct{} // closed to release it
	code     chan int      // holds the answer of the API server
}

// Serve implements faultproxy.Fault.
func (l *late) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	isFirst := false
	if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, l.path) {
		l.once.Do(func() { isFirst = true })
	}
	if !isFirst {
		next.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body) // the client may be frozen from now on
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	close(l.kept)
	<-l.released
	r = r.WithContext(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	l.code <- answer.Code
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = io.Copy(w, answer.Body) // without the client there is no answer, either
}

// electController starts a controller that may become the leader.
func (c *cluster) electController(identity string) *programs.Program {
	c.t.Helper()
	return c.launch([]string{"POD_NAME=" + identity}, identity, c.controllerArgs()...)
}

// awaitLeader waits until a controller is the leader.
func (c *cluster) awaitLeader(identity string) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		l := &coordinationv1.Lease{}
		require.NoError(t, c.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: "placement-controller"}, l))
		assert.True(t, strings.HasPrefix(*l.Spec.HolderIdentity, identity+"-"))
	}, patience, period)
}

// TestFrozenLeaderDoesNoHarm: it is frozen with a write in hand, another one becomes the leader and
// moves the work, and then the write arrives, and the former leader goes on.
func TestFrozenLeaderDoesNoHarm(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"decision": "/queues/" + queue + "/status", "contract": "/configmaps/w-0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testFrozenLeader(t, path)
		})
	}
}

func testFrozenLeader(t *testing.T, path string) {
	t.Helper()
	c := newCluster(t, long)
	require.NoError(t, c.controller.Kill())
	var proxy *faultproxy.Proxy
	var former *programs.Program
	c.through(func(p *faultproxy.Proxy) { proxy, former = p, c.electController("former") })
	c.awaitLeader("former")
	c.electController("next")
	a, b := c.agent("w-0"), c.agent("w-1")
	c.awaitJoined(a, b)
	c.create(4)
	c.await(4, a, b)

	write := &late{path: path, kept: make(chan struct{}), released: make(chan struct{}), code: make(chan int, 1)}
	proxy.Inject(write)
	release := sync.OnceFunc(func() { close(write.released) })
	t.Cleanup(release)
	c.scale(6)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	receive(t, write.kept)
	require.NoError(t, former.Freeze(ctx))
	t.Cleanup(func() { _ = former.Signal(syscall.SIGCONT) })
	c.awaitLeader("next")
	c.await(6, a, b)
	c.setUnschedulable(a, `"true"`)
	c.await(6, b)

	contracts, events := c.contract(t, a).Data["contract"]+c.contract(t, b).Data["contract"], len(c.journal(t))
	release()
	assert.Equal(t, http.StatusConflict, receive(t, write.code))
	require.NoError(t, former.Signal(syscall.SIGCONT))
	receive(t, former.Done())
	assert.Equal(t, 1, former.ExitCode())
	c.await(6, b)
	assert.Equal(t, contracts, c.contract(t, a).Data["contract"]+c.contract(t, b).Data["contract"])
	assert.Len(t, c.journal(t), events)
	c.setUnschedulable(a, `null`)
	c.await(6, a, b) // the leader goes on
}

// receive returns the next value of a channel.
func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		require.Fail(t, "nothing comes")
	}
	return value
}
