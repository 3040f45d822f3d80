package program

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// forbid refuses matching requests for Leases.
type forbid func(r *http.Request) bool

func (f forbid) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if strings.Contains(r.URL.Path, "/leases") && f(r) {
		http.Error(w, "forbidden", http.StatusForbidden)
		return
	}
	next.ServeHTTP(w, r)
}

// Labels on Leases are only informational.
func TestLabelsThatCannotBeWrittenDelayNothing(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	proxy := c.behindProxy()
	proxy.Inject(forbid(func(r *http.Request) bool { return r.Method == http.MethodPatch }))
	c.sharder("a")
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{Duration: time.Second}
	c.create(ring)
	c.lease(ring, "web-0", 600, 0)
	c.lease(ring, "web-1", duration, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]string{"web-0": "ready", "web-1": "dead"}, states(s))
	})
	c.lease(ring, "web-2", 600, 0)
	joined := time.Now()
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 512, "web-2": 512}, shares(s, now))
	})
	assert.Less(t, time.Since(joined), time.Minute, "the settle time without backoff")
	assert.NotContains(t, c.stored(t, "web-0").Labels, prefix.StateLabel())
}

// TestRingReportsThatItsLeasesCannotBeListed covers a part of R36. Other rings are not delayed.
func TestRingReportsThatItsLeasesCannotBeListed(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	other := *c
	other.namespace = "default"
	proxy := c.behindProxy()
	proxy.Inject(forbid(func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, c.namespace)
	}))
	c.sharder("a")
	forbidden := c.create(c.ring(""))
	c.eventually(forbidden, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		ready := meta.FindStatusCondition(s.Conditions, "Ready")
		require.NotNil(t, ready)
		assert.Equal(t, "NoPermission", ready.Reason)
		assert.Contains(t, ready.Message, c.namespace)
	})
	c.event(forbidden, "NoPermission")
	ring := other.create(other.ring(""))
	other.lease(ring, "web-0", 600, 0)
	other.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 1024}, shares(s, now))
	})
}

// A replica whose watch of Leases is behind finds a shard in the table that it has never seen. A
// live read shows that the shard is alive.
func TestShardThatTheWatchDoesNotShowStays(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	ring := c.create(c.ring(""))
	c.lease(ring, "web-0", 600, 0)
	proxy := c.behindProxy()
	first := c.sharder("a")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) { assert.Len(t, shares(s, now), 1) })
	proxy.Inject(forbid(func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, c.namespace+"/leases")
	}))
	proxy.EndWatches()
	c.lease(ring, "web-1", 600, 0) // the sharder does not observe it
	stored := &v1alpha1.ClusterRing{}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(ring), stored))
		stored.Status.Table.Shards = []string{"web-0", "web-1"}
		stored.Status.Table.Generation++
		require.NoError(collect, c.Status().Update(t.Context(), stored))
	}, patience, period)
	require.Eventually(t, func() bool {
		return strings.Contains(first.Output(), "Kept a shard in the table that may still be alive")
	}, patience, period)
	assert.Equal(t, []string{"web-0", "web-1"}, c.status(t, ring).Table.Shards)
}

// TestSharderThatCannotRenewEnds covers a part of R37: a leader ends that could not renew its Lease
// for four seconds, since another replica may lead now. Kubernetes starts it again, as the
// candidate of this test does.
func TestSharderThatCannotRenewEnds(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	ring := c.create(c.ring(""))
	proxy := c.behindProxy()
	leads := c.candidate("a")
	c.lease(ring, "web-0", 600, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 1024}, shares(s, now))
	})
	before := len(leads.ended())
	heal := proxy.Inject(forbid(func(r *http.Request) bool {
		return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/namespaces/"+sharderNamespace+"/leases/sharder")
	}))
	require.Eventually(t, func() bool { return len(leads.ended()) > before }, patience, period, "it goes on without its Lease")
	heal()
	for _, p := range leads.ended() {
		assert.Equal(t, 1, p.ExitCode())
	}
	assert.Contains(t, leads.Output(), "leader election lost")
	c.lease(ring, "web-1", 600, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 512, "web-1": 512}, shares(s, now))
	})
}
