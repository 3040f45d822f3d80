package program

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/metrics"
)

// rounds is the number of attempts at a step that a busy machine can delay.
const rounds = 8

// inTime asserts that a step takes no longer than a limit in at least one of several rounds. A busy
// machine can delay some rounds, but a sharder that always waits too long is late in each.
func inTime(t *testing.T, limit time.Duration, round func(n int) time.Duration) {
	t.Helper()
	var took []time.Duration
	for n := range rounds {
		took = append(took, round(n))
		t.Logf("it took %s", took[n])
		if took[n] <= limit {
			return
		}
	}
	require.Fail(t, "late in each round", "%s, and not %s", took, limit)
}

// scrape returns the metrics of the shared sharder.
func (c *cluster) scrape(t require.TestingT) metrics.Samples {
	all, err := metrics.Scrape(c.t.Context(), sharedMetrics)
	require.NoError(t, err)
	return all
}

// counts waits until the shared sharder has counted a move of a resource of a ring.
func (c *cluster) counts(ring *v1alpha1.ClusterRing, resource, why string) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		assert.Positive(t, c.scrape(t)[fmt.Sprintf(`sharder_moves_total{group="",resource=%q,ring=%q,why=%q}`, resource, ring.Name, why)])
	}, patience, 2*period)
}

// TestStuckShardIsVisibleSoon covers R30: the condition, the event and the metric report the
// timeout within 5 s.
func TestStuckShardIsVisibleSoon(t *testing.T) {
	t.Parallel()
	const timeout, limit = time.Second, 5 * time.Second
	c := newCluster(t)
	for i := range 10 {
		c.secret(fmt.Sprintf("s-%d", i))
	}
	inTime(t, timeout+limit, func(n int) time.Duration {
		ring := c.ring(fmt.Sprintf("-%d", n))
		ring.Spec.Handover.DrainTimeout, ring.Spec.Handover.Settle = &metav1.Duration{Duration: timeout}, &metav1.Duration{}
		c.create(ring)
		c.lease(ring, fmt.Sprintf("old-%d", n), 600, 0)
		c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
			assert.NotContains(collect, c.shardsOf(collect, ring), "")
		})
		drained := time.Now() // not before
		c.lease(ring, fmt.Sprintf("new-%d", n), 600, 0)
		require.Eventually(t, func() bool {
			looked := time.Now()
			if len(c.draining(t, ring)) > 0 {
				return true
			}
			drained = looked
			return false
		}, patience, period)
		c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			assert.Equal(collect, "DrainTimeout", reasonOf(s, "Balanced"))
			assert.GreaterOrEqual(collect, c.scrape(collect)["sharder_oldest_drain_seconds"+of(ring)], timeout.Seconds())
			assert.Positive(collect, c.scrape(collect)["sharder_late_drains"+of(ring)])
		})
		c.event(ring, "DrainTimeout")
		return time.Since(drained)
	})
}

// TestObjectWithoutANameIsAssignedSoon covers R18: an object created with generateName has its
// shard within 1 s.
func TestObjectWithoutANameIsAssignedSoon(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.admitting(c.ring(""), "web-0")
	inTime(t, time.Second, func(int) time.Duration {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: "s-"}}
		began := time.Now()
		c.stores(s)
		assert.NotContains(t, s.Labels, prefix.ShardLabel(ring.Name))
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			assert.Equal(collect, "web-0", c.reread(collect, s).Labels[prefix.ShardLabel(ring.Name)])
		}, patience, period)
		return time.Since(began)
	})
}

// TestLabelsGoInAMinute covers R3: a minute after a resource, a namespace or the ring itself is
// removed, no labels are left, and new objects get none.
func TestLabelsGoInAMinute(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.secret("s")
	c.child(s, "c", nil)
	inTime(t, time.Minute, func(n int) (slowest time.Duration) {
		ring := c.ring(fmt.Sprintf("-%d", n))
		ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "configmaps"}})
		shard := fmt.Sprintf("web-%d", n)
		c.admitting(ring, shard)
		lose := func(change func(), secrets, children string) {
			t.Helper()
			began := time.Now()
			change()
			require.EventuallyWithT(t, func(collect *assert.CollectT) {
				assert.Equal(collect, map[string]int{secrets: 1}, c.shardsOf(collect, ring))
				assert.Equal(collect, map[string]int{children: 1}, c.childrenOf(collect, ring))
				assert.Equal(collect, []string{secrets, children}, c.admits(collect, ring))
			}, patience, period)
			slowest = max(slowest, time.Since(began))
		}
		lose(func() {}, shard, shard)
		slowest = 0 // it has begun
		lose(func() { c.update(ring, func(r *v1alpha1.ClusterRing) { r.Spec.Resources = r.Spec.Resources[:1] }) }, shard, "")
		lose(func() {
			c.update(ring, func(r *v1alpha1.ClusterRing) {
				r.Spec.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: "elsewhere"}
			})
		}, "", "")
		c.update(ring, func(r *v1alpha1.ClusterRing) { r.Spec.NamespaceSelector = c.ring("").Spec.NamespaceSelector })
		c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
			assert.Equal(collect, map[string]int{shard: 1}, c.shardsOf(collect, ring))
			assert.Equal(collect, []string{shard, ""}, c.admits(collect, ring))
		})
		lose(func() { require.NoError(t, c.Delete(t.Context(), ring)) }, "", "")
		began := time.Now()
		c.hasNoPolicies(ring)
		return slowest + time.Since(began)
	})
}

// admits returns the shards that a new Secret and a new ConfigMap get.
func (c *cluster) admits(t require.TestingT, ring *v1alpha1.ClusterRing) (shards []string) {
	for _, o := range []client.Object{secret(c.namespace, "new"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "new"}}} {
		require.NoError(t, c.Create(c.t.Context(), o, client.DryRunAll))
		shards = append(shards, o.GetLabels()[prefix.ShardLabel(ring.Name)])
	}
	return shards
}

// TestSilentShardIsDeadSoon covers R9: a shard with a Lease of 15 s is dead at most 31 s after its
// last renewal, which is the only one here. The API server's timestamps on the Lease, in whole
// seconds, show the time of each write.
func TestSilentShardIsDeadSoon(t *testing.T) {
	t.Parallel()
	const seconds, limit = 15, 31 * time.Second
	c := newCluster(t)
	ring := c.create(c.ring(""))
	c.lease(ring, "web-0", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) { assert.Len(collect, shares(s, now), 1) })
	inTime(t, limit, func(n int) time.Duration {
		name := fmt.Sprintf("silent-%d", n)
		c.lease(ring, name, seconds, 0)
		var taken *coordinationv1.Lease
		require.Eventually(t, func() bool {
			taken = c.stored(t, name)
			return taken == nil || *taken.Spec.HolderIdentity == "sharder"
		}, patience, period)
		if taken == nil {
			return patience // this process stalled for a minute
		}
		return writtenBySharder(taken.ManagedFields).Sub(taken.CreationTimestamp.Time)
	})
}

// writtenBySharder returns when the sharder last wrote its fields of a Lease that it has taken
// over.
func writtenBySharder(fields []metav1.ManagedFieldsEntry) (at time.Time) {
	for _, f := range fields {
		if f.Manager != "shard" && strings.Contains(f.FieldsV1.String(), `"f:holderIdentity"`) {
			at = f.Time.Time
		}
	}
	return at
}
