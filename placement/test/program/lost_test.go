package program

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/faultproxy"
)

// lost cuts the connection after the API server has done a write and answered.
type lost struct {
	// matches selects writes by the object that was stored.
	matches func(method string, stored runtime.Object) bool
	// left is how many answers to lose, and count how many were lost.
	left, count atomic.Int32

	mu    sync.Mutex
	kinds map[string]bool // of the lost answers: method and Go type
}

// lose injects the loss of some answers.
func lose(p *faultproxy.Proxy, n int32, matches func(method string, stored runtime.Object) bool) *lost {
	l := &lost{matches: matches, kinds: map[string]bool{}}
	l.left.Store(n)
	p.Inject(l)
	return l
}

// Serve implements faultproxy.Fault.
func (l *lost) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if r.Method == http.MethodGet {
		next.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	stored := decode(answer.Body.Bytes())
	if answer.Code < http.StatusMultipleChoices && l.matches(r.Method, stored) && l.left.Add(-1) >= 0 {
		l.mu.Lock()
		l.kinds[fmt.Sprintf("%s %T", r.Method, stored)] = true
		l.mu.Unlock()
		l.count.Add(1)
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = io.Copy(w, bytes.NewReader(answer.Body.Bytes())) // without the client there is no answer, either
}

// awaitCount waits until some answers were lost.
func (c *cluster) awaitLost(l *lost, n int32) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return l.count.Load() >= n }, patience, period)
}

// decode returns the object in an answer, in any encoding, or nil if it is of a kind without a Go
// type.
func decode(body []byte) runtime.Object {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil
	}
	return o
}

func isLease(_ string, stored runtime.Object) bool {
	_, ok := stored.(*coordinationv1.Lease)
	return ok
}

// oneLease asserts that the pods have a Lease each, and that there are no others.
func (c *cluster) oneLease(pods ...*pod) {
	c.t.Helper()
	list := &coordinationv1.LeaseList{}
	require.NoError(c.t, c.List(c.t.Context(), list, client.InNamespace(c.namespace)))
	var names, has []string
	for _, p := range pods {
		names = append(names, p.name)
	}
	for i := range list.Items {
		has = append(has, list.Items[i].Name)
	}
	assert.ElementsMatch(c.t, names, has)
}

// TestLostAnswerToTheFirstWrite: the agent does not know that it has the Lease. It had no work yet,
// so it may begin another run.
func TestLostAnswerToTheFirstWrite(t *testing.T) {
	t.Parallel()
	c := newCluster(t, long)
	c.create(2)
	var a *pod
	var l *lost
	c.through(func(p *faultproxy.Proxy) {
		l = lose(p, 1, func(method string, stored runtime.Object) bool {
			return method == http.MethodPost && isLease(method, stored)
		})
		a = c.agent("w-0")
	})
	c.awaitLost(l, 1)
	c.await(2, a)
	c.oneLease(a)
}

// newLossy starts a controller and two agents, the first of which uses a proxy, and returns when
// they work on four partitions. The Leases last so long that an agent on a busy machine has time to
// try again.
func newLossy(t *testing.T) (c *cluster, proxy *faultproxy.Proxy, a, b *pod) {
	t.Helper()
	c = newCluster(t, 2*long)
	c.through(func(p *faultproxy.Proxy) { proxy, a = p, c.agent("w-0") })
	b = c.agent("w-1")
	c.awaitJoined(a, b)
	c.create(4)
	c.await(4, a, b)
	return c, proxy, a, b
}

// TestLostAnswersToRenewals: the version of the Lease is unknown, and the agent reads it.
func TestLostAnswersToRenewals(t *testing.T) {
	t.Parallel()
	c, proxy, a, b := newLossy(t)
	holder, events := c.holder(t, a), len(c.journal(t))
	l := lose(proxy, 2, isLease)
	c.awaitLost(l, 2)
	renewed := c.lease(t, a).Spec.RenewTime
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.NotEqual(t, renewed, c.lease(t, a).Spec.RenewTime) }, patience, period)
	c.await(4, a, b)
	assert.Equal(t, holder, c.holder(t, a))
	assert.Len(t, c.journal(t), events)
	c.oneLease(a, b)
}

// TestLostAnswerToAnAcknowledgement, of work that starts and of work that has stopped.
func TestLostAnswerToAnAcknowledgement(t *testing.T) {
	t.Parallel()
	c, proxy, a, b := newLossy(t)
	holder := c.holder(t, a)
	for _, partitions := range []int{8, 2} {
		before, err := contract.DecodeAck([]byte(c.lease(t, a).Annotations[contract.AcknowledgedAnnotation]))
		require.NoError(t, err)
		l := lose(proxy, 1, func(_ string, stored runtime.Object) bool {
			l, ok := stored.(*coordinationv1.Lease)
			if !ok {
				return false
			}
			ack, err := contract.DecodeAck([]byte(l.Annotations[contract.AcknowledgedAnnotation]))
			return err == nil && ack.Generation > before.Generation
		})
		c.scale(int64(partitions))
		c.awaitLost(l, 1)
		c.await(partitions, a, b)
	}
	assert.Equal(t, holder, c.holder(t, a))
	assert.Len(t, pids(c.journal(t), a), 4)
	c.oneLease(a, b)
}

// TestLostAnswerToTheRelease: the agent finds out that it has released the Lease.
func TestLostAnswerToTheRelease(t *testing.T) {
	t.Parallel()
	c, proxy, a, b := newLossy(t)
	holder := c.holder(t, a)
	l := lose(proxy, 1, func(_ string, stored runtime.Object) bool {
		l, ok := stored.(*coordinationv1.Lease)
		return ok && *l.Spec.HolderIdentity == ""
	})
	require.NoError(t, a.Stop(stopTimeout))
	assert.Zero(t, a.ExitCode())
	assert.EqualValues(t, 1, l.count.Load())
	assert.Empty(t, c.holder(t, a))
	assert.Equal(t, holder, c.lease(t, a).Annotations[contract.EndedAnnotation])
	c.await(4, b)
}

// TestAllAnswersAreLost: the Lease is renewed, but the agent does not know that. It stops its work,
// acknowledges that it does not work, and goes on as the same incarnation.
func TestAllAnswersAreLost(t *testing.T) {
	t.Parallel()
	c, proxy, a, b := newLossy(t)
	holder := c.holder(t, a)
	heal := proxy.Inject(faultproxy.DropAnswers{Share: 1})
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, name := range journal.Owners(c.journal(t), queue) {
			assert.NotEqual(t, a.name, name)
		}
		status, _ := c.condition(t, "Acknowledged")
		assert.Equal(t, "False", status)
	}, patience, period)
	heal()
	c.await(4, a, b)
	assert.Equal(t, holder, c.holder(t, a))
	c.oneLease(a, b)
}

// TestLostAnswersToTheController: of all writes that it does. It does nothing twice.
func TestLostAnswersToTheController(t *testing.T) {
	t.Parallel()
	c := newCluster(t, short)
	require.NoError(t, c.controller.Kill())
	var l *lost
	c.through(func(p *faultproxy.Proxy) {
		l = lose(p, 1000, func(string, runtime.Object) bool { return true })
		c.startController()
	})
	a, b := c.agent("w-0"), c.agent("w-1")
	c.awaitJoined(a, b)
	c.create(4)
	before := c.await(4, a, b)
	c.scale(6)
	after := c.await(6, a, b)
	for index, name := range before {
		assert.Equal(t, name, after[index])
	}
	assert.Len(t, c.journal(t), 6, "only the new ones have started")
	require.NoError(t, a.Kill()) // a takeover
	c.await(6, b)
	a = c.restart(a)
	c.await(6, a, b)
	require.NoError(t, c.Delete(t.Context(), queues.New(c.namespace, queue, 0)))
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Empty(t, journal.Owners(c.journal(t), queue)) }, patience, period)
	c.oneLease(a, b)
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Equal(t, map[string]bool{
		"POST *v1.ConfigMap": true, "PUT *v1.ConfigMap": true, // contracts
		"PUT *v1.Lease": true, // the takeover
		"PUT <nil>":     true, // statuses
	}, l.kinds)
}
