package program

import (
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/metrics"
	"nodekeeper.dev/test/ports"
)

// reads records read requests for Secrets and Leases.
type reads struct {
	mu  sync.Mutex
	all []*http.Request
}

func (f *reads) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if r.Method == http.MethodGet && (strings.Contains(r.URL.Path, "/secrets") || strings.Contains(r.URL.Path, "/leases")) {
		f.mu.Lock()
		f.all = append(f.all, r)
		f.mu.Unlock()
	}
	next.ServeHTTP(w, r)
}

// take returns the requests since the last call, as paths with queries.
func (f *reads) take() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.all {
		all = append(all, r.URL.Path+" "+r.URL.Query().Get("labelSelector"))
	}
	f.all = nil
	return all
}

// meanwhile changes an object whose name has a prefix, once, before a write of it arrives.
type meanwhile struct {
	prefix string
	do     func(name string)
	once   *sync.Once
}

func (f meanwhile) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if name := path.Base(r.URL.Path); r.Method == http.MethodPatch && strings.HasPrefix(name, f.prefix) {
		f.once.Do(func() { f.do(name) })
	}
	next.ServeHTTP(w, r)
}

// TestSharderReadsAndReports runs one sharder behind a proxy.
func TestSharderReadsAndReports(t *testing.T) { //nolint:tparallel // its parts use the same ring in sequence
	t.Parallel()
	c := newSite(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{}
	shards := []string{"web-0", "web-1", "web-2"}
	for _, name := range shards {
		c.lease(ring, name, 600, 0)
	}
	proxy := c.behindProxy()
	address, err := ports.Address()
	require.NoError(t, err)
	c.sharder("a", "--metrics-bind-address="+address)
	c.admitting(ring)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		require.NotNil(collect, s.Table)
		assert.Equal(collect, shards, s.Table.Shards)
		assert.Equal(collect, "Balanced", reasonOf(s, "Balanced"))
	})
	seen := &reads{}
	proxy.Inject(seen)
	scrape := func(t require.TestingT) metrics.Samples {
		all, err := metrics.Scrape(c.t.Context(), address)
		require.NoError(t, err)
		return all
	}
	t.Run("a quiet ring reads nothing", func(t *testing.T) { c.readsNothing(t, ring, seen, scrape) })
	t.Run("a death lists what it moves", func(t *testing.T) { c.listsWhatMoves(t, ring, seen) })
	t.Run("unrelated edits do not matter", func(t *testing.T) {
		before := scrape(t)["sharder_patch_conflicts_total"+of(ring)]
		c.edits(t, ring, proxy, "unrelated", `{"metadata":{"annotations":{"unrelated":"edit"}}}`)
		assert.InDelta(t, before, scrape(t)["sharder_patch_conflicts_total"+of(ring)], 0)
	})
	t.Run("a lost race concerns one object", func(t *testing.T) {
		before := scrape(t)["sharder_patch_conflicts_total"+of(ring)]
		c.edits(t, ring, proxy, "race", `{"metadata":{"labels":{"`+prefix.DrainLabel(ring.Name)+`":"web-9"}}}`)
		assert.Greater(t, scrape(t)["sharder_patch_conflicts_total"+of(ring)], before)
	})
	t.Run("all metrics", func(t *testing.T) { c.hasAllMetrics(t, ring, scrape) })
	t.Run("a sharder that is cut off ends no shard", func(t *testing.T) { c.endsNoShard(t, proxy) })
}

// of returns the label of metrics of a ring.
func of(ring *v1alpha1.ClusterRing) string { return fmt.Sprintf("{ring=%q}", ring.Name) }

// readsNothing covers R22 and F9 (upstream lists Leases and builds the ring for every admission
// request), and R23: the watches of a quiet ring match no object.
func (c *cluster) readsNothing(t *testing.T, ring *v1alpha1.ClusterRing, seen *reads, scrape func(require.TestingT) metrics.Samples) {
	t.Helper()
	computations := "sharder_ring_computations_total" + of(ring)
	before := scrape(t)[computations]
	require.Positive(t, before)
	seen.take()
	for i := range 30 {
		s := c.secret(fmt.Sprintf("s-%d", i))
		assert.NotEmpty(t, s.Labels[prefix.ShardLabel(ring.Name)])
	}
	assert.Never(t, func() bool { return len(seen.take()) > 0 }, 5*time.Second, 2*period)
	assert.InDelta(t, before, scrape(t)[computations], 0, "tables are computed when shards come and go only")
}

// listsWhatMoves covers R22 (F12: each membership change lists all objects in one response): after
// a death, objects at live shards are not read.
func (c *cluster) listsWhatMoves(t *testing.T, ring *v1alpha1.ClusterRing, seen *reads) {
	t.Helper()
	seen.take()
	c.change("web-2", `{"spec":{"holderIdentity":""}}`)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, []string{"web-0", "web-1"}, s.Table.Shards)
		c.inPlace(collect, ring, s)
		assert.Equal(collect, "Balanced", reasonOf(s, "Balanced"))
	})
	const exceptions = "/secrets "
	all := seen.take()
	lists := 0
	for _, read := range all {
		if _, selector, isOfSecrets := strings.Cut(read, exceptions); isOfSecrets {
			lists++
			assert.Contains(t, selector, prefix.ShardLabel(ring.Name)+" notin (web-0,web-1", read)
		}
	}
	assert.Positive(t, lists)
}

// edits covers R25: an object that the sharder is about to assign is changed by another client, and
// policies do not assign it then. Another object is assigned nevertheless.
func (c *cluster) edits(t *testing.T, ring *v1alpha1.ClusterRing, proxy *faultproxy.Proxy, name, patch string) {
	t.Helper()
	edited := make(chan error, 1)
	heal := proxy.Inject(meanwhile{name + "-", func(name string) {
		edited <- c.asSharder().Patch(t.Context(), secret(c.namespace, name), client.RawPatch(types.MergePatchType, []byte(patch)))
	}, &sync.Once{}})
	defer heal()
	for _, prefix := range []string{name, "another"} { // without a name, the policy leaves them to the sharder
		c.stores(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: prefix + "-"}})
	}
	select {
	case err := <-edited:
		require.NoError(t, err)
	case <-time.After(patience):
		require.Fail(t, "the sharder did not write the object")
	}
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) { c.inPlace(collect, ring, s) })
}

// endsNoShard covers R9: no shard is dead while the sharder cannot reach the API server, and a
// shard that has renewed its Lease meanwhile is alive, although the sharder has not observed that
// for more than twice its duration.
func (c *cluster) endsNoShard(t *testing.T, proxy *faultproxy.Proxy) {
	t.Helper()
	ring := c.create(c.ring("-cut"))
	c.lease(ring, "cut-0", duration, 0)
	defer c.renew("cut-0", duration*time.Second/8, 0)()
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]string{"cut-0": "ready"}, states(s))
		assert.Equal(collect, map[string]int{"cut-0": 1024}, shares(s, now))
	})
	before := c.status(t, ring).Table
	heal := proxy.Inject(refuse(func(*http.Request) bool { return true }))
	proxy.EndWatches()
	cut := time.Now()
	require.Eventually(t, func() bool { return time.Since(cut) > (2*duration+1)*time.Second }, patience, 2*period)
	heal()
	s := c.secret("cut")
	c.eventually(ring, func(collect *assert.CollectT, status *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, "cut-0", c.reread(collect, s).Labels[prefix.ShardLabel(ring.Name)], "the sharder is at work again")
		assert.Equal(collect, map[string]string{"cut-0": "ready"}, states(status))
	})
	assert.Equal(t, before.Slots, c.status(t, ring).Table.Slots)
	l := c.stored(t, "cut-0")
	assert.Equal(t, "cut-0", *l.Spec.HolderIdentity)
	assert.Nil(t, l.Spec.AcquireTime, "the Lease was not taken over")
}

// hasAllMetrics covers R40 without the library, after a shard has joined and objects were drained.
func (c *cluster) hasAllMetrics(t *testing.T, ring *v1alpha1.ClusterRing, scrape func(require.TestingT) metrics.Samples) {
	t.Helper()
	c.acknowledgeAll(ring)
	c.lease(ring, "web-3", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(collect, ring, s)
		assert.Positive(collect, c.shardsOf(collect, ring)["web-3"])
	})
	resource := fmt.Sprintf(`{group="",resource="secrets",ring=%q`, ring.Name)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		all := scrape(collect)
		for _, name := range []string{
			"sharder_shards{ring=" + strconv.Quote(ring.Name) + `,state="ready"}`, "sharder_ring_generation" + of(ring), "sharder_ring_computations_total" + of(ring),
			"sharder_slots{ring=" + strconv.Quote(ring.Name) + `,shard="web-3"}`, fmt.Sprintf(`sharder_ring_condition{condition="Ready",reason="Reconciled",ring=%q}`, ring.Name), "sharder_drains_total" + resource + "}", "sharder_sync_seconds_count" + of(ring),
			"sharder_drain_seconds_count" + of(ring), "sharder_patch_conflicts_total" + of(ring),
			`sharder_assignments_total{by="watch",` + resource[1:] + "}",
			"sharder_moves_total" + resource + `,why="dead"}`, "sharder_moves_total" + resource + `,why="released"}`,
		} {
			assert.Positive(collect, all[name], name)
		}
		for _, name := range []string{"sharder_unassigned_objects", "sharder_oldest_drain_seconds", "sharder_late_drains", "sharder_failing_objects", "sharder_left_objects_total"} {
			assert.Contains(collect, all, name+of(ring))
			assert.Zero(collect, all[name+of(ring)], name)
		}
	}, patience, 2*period)
}
