package program

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/uuid"

	"nodekeeper.dev/internal/daemon/connect"
	"nodekeeper.dev/placement/agent"
	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/faultproxy"
)

// keeper is an agent in this process whose work goes on when it cannot renew its Lease.
type keeper struct {
	*pod

	mu      sync.Mutex
	running map[int32]int64 // epochs by partition
	starts  int
}

// Work implements agent.Worker.
func (k *keeper) Work(ctx context.Context, r agent.Replica, ready func()) error {
	k.mu.Lock()
	k.running[r.Index] = r.Epoch
	k.starts++
	k.mu.Unlock()
	ready()
	<-ctx.Done()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.running, r.Index)
	return nil
}

// runs returns the epochs of what runs, by partition, and how many Workers have started so far.
func (k *keeper) runs() (running map[int32]int64, starts int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.running), k.starts
}

// keeper starts an agent that keeps its work, in a new pod. It ends with the test.
func (c *cluster) keeper(name string) *keeper {
	c.t.Helper()
	cfg, err := connect.Config("placement-agent", c.kubeconfig)
	require.NoError(c.t, err)
	k := &keeper{pod: &pod{name: name, uid: uuid.NewUUID()}, running: map[int32]int64{}}
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error)
	go func() {
		ended <- agent.Run(ctx, cfg, agent.Options{
			Namespace: c.namespace, Pool: pool, Pod: name, PodUID: k.uid, LeaseDuration: c.duration, OnLostLease: agent.Keep,
		}, k)
	}()
	c.t.Cleanup(func() {
		cancel()
		assert.NoError(c.t, <-ended)
		running, _ := k.runs()
		assert.Empty(c.t, running)
	})
	return k
}

// awaitRuns waits until a keeper works on a number of partitions, and the Queue is Ready.
func (c *cluster) awaitRuns(k *keeper, count int) (running map[int32]int64) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		running, _ = k.runs()
		assert.Len(t, running, count)
		status, reason := c.condition(t, "Ready")
		assert.Equal(t, "True", status, reason)
	}, patience, period)
	return running
}

// withKeeper starts a keeper, which uses a proxy, and an agent that does not keep its work, and
// returns when each works on two partitions.
func withKeeper(t *testing.T) (c *cluster, proxy *faultproxy.Proxy, k *keeper, other *pod) {
	t.Helper()
	c = newCluster(t, short)
	c.through(func(p *faultproxy.Proxy) { proxy, k = p, c.keeper("w-0") })
	other = c.agent("w-1")
	c.awaitJoined(k.pod, other)
	c.create(4)
	c.awaitRuns(k, 2)
	return c, proxy, k, other
}

// unanswered cuts the connection in place of an answer to some requests.
type unanswered func(r *http.Request) bool

// Serve implements faultproxy.Fault.
func (u unanswered) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if u(r) {
		panic(http.ErrAbortHandler)
	}
	next.ServeHTTP(w, r)
}

func isCutOff(*http.Request) bool { return true }

func writesLease(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/leases/")
}

// TestKeptWorkGoesOnWithoutTheAPIServer for longer than it takes to take over a Lease: nothing is
// interrupted, and nothing moves.
func TestKeptWorkGoesOnWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	plane := ownPlane(t)
	c := clusterOn(t, plane, short)
	a, b := c.keeper("w-0"), c.keeper("w-1")
	c.awaitJoined(a.pod, b.pod)
	c.create(4)
	ofA, ofB := c.awaitRuns(a, 2), c.awaitRuns(b, 2)
	holder, renewed := c.holder(t, a.pod), c.lease(t, a.pod).Spec.RenewTime.Time
	require.NoError(t, plane.StopServer(controlplane.APIServer))
	require.Eventually(t, func() bool { return time.Since(renewed) > 3*short }, patience, period)
	require.NoError(t, plane.StartServer(controlplane.APIServer))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.True(t, c.lease(t, a.pod).Spec.RenewTime.After(renewed))
	}, patience, period)
	assert.Equal(t, ofA, c.awaitRuns(a, 2))
	assert.Equal(t, ofB, c.awaitRuns(b, 2))
	assert.Equal(t, holder, c.holder(t, a.pod))
	c.scale(6)
	c.awaitRuns(a, 3)
	_, starts := a.runs()
	assert.Equal(t, 3, starts)
}

// TestKeptWorkOfAPodThatIsCutOff is done by two pods until the first one is back. Then that one
// stops, and gets work with a new incarnation.
func TestKeptWorkOfAPodThatIsCutOff(t *testing.T) {
	t.Parallel()
	c, proxy, a, b := withKeeper(t)
	before, holder := c.awaitRuns(a, 2), c.holder(t, a.pod)
	heal := proxy.Inject(unanswered(isCutOff))
	proxy.CutWatches()
	c.await(4, b)
	now, starts := a.runs()
	assert.Equal(t, before, now)
	assert.Equal(t, 2, starts)
	for _, e := range c.journal(t) {
		if epoch, runs := now[e.Index]; runs {
			assert.Greater(t, e.Epoch, epoch, "a fence refuses the former owner: %+v", e)
		}
	}
	heal()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		owners := journal.Owners(c.journal(t), queue)
		again, _ := a.runs()
		assert.Len(t, again, 2)
		for index, epoch := range again {
			assert.NotContains(t, owners, index)
			assert.NotEqual(t, before[index], epoch)
		}
		assert.Len(t, owners, 2)
	}, patience, period)
	c.awaitRuns(a, 2)
	assert.NotEqual(t, holder, c.holder(t, a.pod))
}

// TestKeptWorkEndsWhenTheLeaseIsReadAsTakenOver although no write of the Lease is answered.
func TestKeptWorkEndsWhenTheLeaseIsReadAsTakenOver(t *testing.T) {
	t.Parallel()
	c, proxy, a, b := withKeeper(t)
	heal := proxy.Inject(unanswered(writesLease))
	require.Eventually(t, func() bool { return c.holder(t, a.pod) == "" }, patience, period)
	require.Eventually(t, func() bool { running, _ := a.runs(); return len(running) == 0 }, patience, period)
	c.await(4, b)
	heal()
	c.awaitRuns(a, 2)
}

// TestKeptWorkEndsWhenAnotherPodHasTheLease of the same name: the former one does no more.
func TestKeptWorkEndsWhenAnotherPodHasTheLease(t *testing.T) {
	t.Parallel()
	c, proxy, a, b := withKeeper(t)
	heal := proxy.Inject(unanswered(isCutOff))
	proxy.CutWatches()
	next := c.agent(a.name)
	c.await(4, next, b)
	running, _ := a.runs()
	assert.Len(t, running, 2)
	holder := c.holder(t, next)
	heal()
	require.Eventually(t, func() bool { running, _ := a.runs(); return len(running) == 0 }, patience, period)
	c.await(4, next, b)
	assert.Equal(t, holder, c.holder(t, next))
	_, starts := a.runs()
	assert.Equal(t, 2, starts)
}
