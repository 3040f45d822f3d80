package program

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/metrics"
	"nodekeeper.dev/test/ports"
)

// anotherShard maps each of two shards to the other one.
var anotherShard = map[string]string{"web-0": "web-1", "web-1": "web-0"}

// merge applies a merge patch to the metadata of an object.
func (c *cluster) merge(object client.Object, metadata string) {
	c.t.Helper()
	require.NoError(c.t, c.Patch(c.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":`+metadata+`}`))))
}

// TestMisplacedObjectsAtRestAreRepaired covers R24 and R11: no event shows that another client has
// assigned an object to another live shard, or has changed what determines where it belongs. The
// object is moved by a hand-over.
func TestMisplacedObjectsAtRestAreRepaired(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.sharder("a", "--admission=none", "--sync-period=2s")
	ring := c.ring("")
	ring.Spec.Resources[0].Key, ring.Spec.Resources[0].KeyLabel = v1alpha1.KeyLabel, "example.com/team"
	c.balanced(ring, 20, "web-0", "web-1")
	rest := func() (s *v1alpha1.ClusterRingStatus) {
		t.Helper()
		c.eventually(ring, func(collect *assert.CollectT, now *v1alpha1.ClusterRingStatus) {
			assert.Equal(collect, "Balanced", reasonOf(now, "Balanced"))
			s = now
		})
		return s
	}
	ring.Status = *rest()
	shard, drain := prefix.ShardLabel(ring.Name), prefix.DrainLabel(ring.Name)
	releases := func(s *corev1.Secret, from, to string) {
		t.Helper()
		c.eventually(ring, func(collect *assert.CollectT, now *v1alpha1.ClusterRingStatus) {
			labels := c.reread(collect, s).Labels
			assert.Equal(collect, from, labels[shard], "it stays until its shard releases it")
			assert.Equal(collect, to, labels[drain])
			assert.Equal(collect, "Moving", reasonOf(now, "Balanced"))
		})
		c.merge(s.DeepCopy(), `{"labels":{"`+shard+`":null}}`)
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			assert.Equal(collect, to, c.reread(collect, s).Labels[shard])
		}, patience, period)
		rest()
	}
	s := c.reread(t, secret(c.namespace, "s-0"))
	right := s.Labels[shard]
	wrong := anotherShard[right]
	c.merge(s, `{"labels":{"`+shard+`":"`+wrong+`"}}`)
	releases(s, wrong, right)

	team := "team"
	for i := 0; placed(ring, team) == right; i++ {
		team = fmt.Sprintf("team-%d", i)
	}
	c.merge(s, `{"labels":{"example.com/team":"`+team+`"}}`)
	releases(s, right, wrong)
}

// TestMisplacedChildrenAtRestAreRepaired covers R24: a child goes to the shard of its controller.
func TestMisplacedChildrenAtRestAreRepaired(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.sharder("a", "--admission=none", "--sync-period=2s")
	ring := c.ring("")
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	c.balanced(ring, 20, "web-0", "web-1")
	shard := prefix.ShardLabel(ring.Name)
	owners := map[string]*corev1.Secret{}
	for _, s := range c.secrets(t) {
		owners[s.Labels[shard]] = &s
	}
	require.Len(t, owners, 2)
	child := c.child(owners["web-0"], "child", nil)
	follows := func(to string) {
		t.Helper()
		c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(child), child))
			assert.Equal(collect, to, child.Labels[shard])
			assert.Equal(collect, "Balanced", reasonOf(s, "Balanced"))
		})
	}
	follows("web-0")
	c.merge(child, `{"labels":{"`+shard+`":"web-1"}}`)
	follows("web-0")
	child.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owners["web-1"], corev1.SchemeGroupVersion.WithKind("Secret"))}
	require.NoError(t, c.Update(t.Context(), child))
	follows("web-1")
}

// requests counts the requests for Secrets and ConfigMaps, and all writes but those of Leases.
type requests struct{ lists, others, writes atomic.Int64 }

func (f *requests) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	_, name, isObject := strings.Cut(r.URL.Path, "/api/v1/")
	isObject = isObject && (strings.Contains(name, "secrets") || strings.Contains(name, "configmaps"))
	switch {
	case isWrite(r):
		f.writes.Add(1)
	case isObject && r.URL.Query().Get("labelSelector") == "" && (name == "secrets" || name == "configmaps"):
		f.lists.Add(1)
	case isObject:
		f.others.Add(1)
	}
	next.ServeHTTP(w, r)
}

// TestResyncAtRestCostsOneListPerResource covers R24: it does not write or read single objects.
// That is also true of children whose key differs from that of their controller.
func TestResyncAtRestCostsOneListPerResource(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	proxy := c.behindProxy()
	address, err := ports.Address()
	require.NoError(t, err)
	c.sharder("a", "--admission=none", "--sync-period=1s", "--metrics-bind-address="+address)
	ring := c.ring("")
	main := &ring.Spec.Resources[0]
	main.Key, main.KeyLabel = v1alpha1.KeyLabel, "example.com/team"
	main.ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	c.balanced(ring, 20, "web-0", "web-1")
	for i, s := range c.secrets(t) {
		c.child(&s, s.Name, map[string]string{main.KeyLabel: fmt.Sprintf("team-%d", i)})
	}
	syncs := func(collect require.TestingT) float64 {
		all, err := metrics.Scrape(context.WithoutCancel(t.Context()), address)
		require.NoError(collect, err)
		return all["sharder_sync_seconds_count"+of(ring)]
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) { // while no other request is in flight
		s := c.status(collect, ring)
		require.Equal(collect, "Balanced", reasonOf(s, "Balanced"))
		require.NotContains(collect, c.childrenOf(collect, ring), "")
		seen := &requests{}
		defer proxy.Inject(seen)()
		before := syncs(collect)
		require.Eventually(collect, func() bool { return syncs(collect) >= before+3 }, patience, period)
		assert.GreaterOrEqual(collect, seen.lists.Load(), int64(2*2))
		assert.Zero(collect, seen.others.Load())
		assert.Zero(collect, seen.writes.Load())
		assert.Equal(collect, "Balanced", reasonOf(c.status(collect, ring), "Balanced"))
	}, patience, period)
}
