package program

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/faultproxy"
)

// refuse answers matching requests with an error.
type refuse func(r *http.Request) bool

func (f refuse) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if f(r) {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	next.ServeHTTP(w, r)
}

// only restricts a fault to matching requests.
type only struct {
	matches func(r *http.Request) bool
	faultproxy.Fault
}

func (f only) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, healed <-chan struct{}) {
	if f.matches(r) {
		f.Fault.Serve(w, r, next, healed)
		return
	}
	next.ServeHTTP(w, r)
}

// hang blocks matching requests until it is healed.
type hang func(r *http.Request) bool

func (f hang) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, healed <-chan struct{}) {
	if f(r) {
		select {
		case <-healed:
		case <-r.Context().Done():
		}
	}
	next.ServeHTTP(w, r)
}

// TestOneObjectDelaysNoOther covers R36 (F11: a conflict fails upstream's resync of the whole
// ring): an object that cannot be written and lost responses delay no other object, and the object
// gets its shard as soon as it can be written.
func TestOneObjectDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	ring := c.create(c.ring(""))
	proxy := c.behindProxy()
	heal := proxy.Inject(refuse(func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/secrets/s-3")
	}))
	proxy.Inject(only{func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/secrets/") }, faultproxy.DropAnswers{Share: 0.3}})
	for i := range 40 {
		c.secret(fmt.Sprintf("s-%d", i))
	}
	c.sharder("a")
	c.lease(ring, "web-0", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 39, "": 1}, c.shardsOf(collect, ring))
		assert.EqualValues(collect, 1, s.Unassigned)
		assert.Equal(collect, "MovesFailing", reasonOf(s, "Balanced"))
	})
	heal()
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 40}, c.shardsOf(collect, ring))
	})
}

// TestMissingResourceDelaysNoOther covers R36: a ring with a resource that the API server does not
// serve reports that, and distributes the other resources.
func TestMissingResourceDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Group: "example.com", Resource: "widgets"}})
	c.create(ring)
	c.secret("s")
	c.lease(ring, "web-0", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 1}, c.shardsOf(collect, ring))
		ready := meta.FindStatusCondition(s.Conditions, "Ready")
		require.NotNil(collect, ready)
		assert.Equal(collect, "ResourceNotFound", ready.Reason)
		assert.Contains(collect, ready.Message, "widgets.example.com")
	})
	c.event(ring, "ResourceNotFound")
}

// TestClusterScopedObjectsMove covers F2: upstream never moves them.
func TestClusterScopedObjectsMove(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Resources = []v1alpha1.Resource{{GroupResource: v1alpha1.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}}}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Provisioner: "example.com/none"}
	require.NoError(t, c.Create(t.Context(), class))
	t.Cleanup(func() { assert.NoError(t, c.Delete(context.WithoutCancel(t.Context()), class)) })
	c.create(ring)
	at := func(shard string) {
		c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
			require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(class), class))
			assert.Equal(collect, shard, class.Labels[prefix.ShardLabel(ring.Name)])
		})
	}
	c.lease(ring, "web-0", 600, 0)
	at("web-0")
	c.lease(ring, "web-1", 600, 0)
	c.change("web-0", `{"spec":{"holderIdentity":""}}`)
	at("web-1")
}

// A label can name a shard that has joined since the sharder's last observation. Its Lease shows
// that it is alive.
func TestObjectOfAShardThatTheTableDoesNotHaveStays(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	ring := c.create(c.ring(""))
	c.lease(ring, "web-0", 600, 0)
	proxy := c.behindProxy()
	c.sharder("a")
	s := c.secret("s")
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 1}, c.shardsOf(collect, ring))
	})
	heal := proxy.Inject(forbid(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, c.namespace+"/leases") }))
	proxy.EndWatches()
	c.lease(ring, "web-1", 600, 0) // the sharder does not observe it
	key := prefix.ShardLabel(ring.Name)
	s = c.reread(t, s)
	s.Labels[key] = "web-1"
	require.NoError(t, c.Update(t.Context(), s))
	other := c.secret("other")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, "web-0", c.reread(collect, other).Labels[key], "the sharder is at work")
	}, patience, period)
	assert.Equal(t, "web-1", c.reread(t, s).Labels[key])
	heal()
}

// TestShutdownDoesNotWaitForAResync covers R36 (F13: upstream's shutdown during a resync blocks
// until the grace period ends): a sharder whose requests hang exits within 2 s, both while it
// writes objects and while a resync reads them.
func TestShutdownDoesNotWaitForAResync(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	ring := c.create(c.ring(""))
	c.lease(ring, "web-0", 600, 0)
	for i := range 20 {
		c.secret(fmt.Sprintf("s-%d", i))
	}
	proxy := c.behindProxy()
	writes := func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, c.namespace+"/secrets/")
	}
	// A resync reads all objects in the stream of one watch, or in pages; long-lived watches use
	// selectors.
	passes := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/secrets") && !strings.Contains(r.URL.Path, sharderNamespace) && r.URL.Query().Get("labelSelector") == ""
	}
	inTime(t, 2*time.Second, func(n int) time.Duration { return c.endsWhile(proxy, fmt.Sprintf("writes-%d", n), writes) })
	inTime(t, 2*time.Second, func(n int) time.Duration { return c.endsWhile(proxy, fmt.Sprintf("reads-%d", n), passes) })
}

// endsWhile returns how long a sharder takes to exit on SIGTERM while its requests hang.
func (c *cluster) endsWhile(proxy *faultproxy.Proxy, identity string, hangs func(*http.Request) bool) time.Duration {
	c.t.Helper()
	hung := make(chan struct{}, 1)
	defer proxy.Inject(hang(func(r *http.Request) bool {
		if !hangs(r) {
			return false
		}
		select {
		case hung <- struct{}{}:
		default: // one is enough
		}
		return true
	}))()
	p := c.sharder(identity)
	select {
	case <-hung:
	case <-time.After(patience):
		require.Fail(c.t, "no request hangs", identity)
	}
	begin := time.Now()
	require.NoError(c.t, p.Signal(syscall.SIGTERM))
	select {
	case <-p.Done():
	case <-time.After(patience):
		require.Fail(c.t, "it does not end", identity)
	}
	return time.Since(begin)
}

// With key Namespace, all objects of a namespace have the same shard. With key Label, objects with
// the same value of the label do.
func TestKeysKeepObjectsTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	byNamespace, byLabel := c.ring("-n"), c.ring("-l")
	byNamespace.Spec.Resources[0].Key = v1alpha1.KeyNamespace
	byLabel.Spec.Resources[0].Key, byLabel.Spec.Resources[0].KeyLabel = v1alpha1.KeyLabel, "example.com/team"
	for _, ring := range []*v1alpha1.ClusterRing{byNamespace, byLabel} {
		ring.Spec.Handover.Settle = &metav1.Duration{}
		c.create(ring)
		for i := range 4 {
			c.lease(ring, fmt.Sprintf("%s-%d", ring.Name, i), 600, 0)
		}
	}
	for i := range 24 {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: fmt.Sprintf("s-%d", i)}}
		if i < 12 {
			s.Labels = map[string]string{"example.com/team": "blue"}
		}
		require.NoError(t, c.Create(t.Context(), s))
	}
	c.acknowledgeAll(byLabel)
	c.acknowledgeAll(byNamespace)
	c.eventually(byLabel, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		blue, others := map[string]bool{}, map[string]bool{}
		for _, s := range c.secrets(collect) {
			of := others
			if s.Labels["example.com/team"] != "" {
				of = blue
			}
			of[s.Labels[prefix.ShardLabel(byLabel.Name)]] = true
		}
		assert.Len(collect, blue, 1)
		assert.NotContains(collect, blue, "")
		assert.Greater(collect, len(others), 1)
		assert.Len(collect, c.shardsOf(collect, byNamespace), 1)
		assert.Zero(collect, c.shardsOf(collect, byNamespace)[""])
	})
}
