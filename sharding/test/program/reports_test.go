package sharder

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestBadLeasesAreReported is R10: those that do not count cause an event, and creates go on. TestLeasesOfOthersDoNotCount has the third reason.
func TestBadLeasesAreReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{Duration: 10 * time.Minute} // nobody else gets slots
	c.create(ring)
	c.lease(ring, "web-0", 600, 0)
	reported := func(reason string) {
		t.Helper()
		c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			assert.Equal(collect, reason, reasonOf(s, "ShardsAccepted"))
			assert.True(collect, meta.IsStatusConditionFalse(s.Conditions, "ShardsAccepted"))
			assert.Equal(collect, map[string]int{"web-0": 1024}, shares(s, now))
		})
		c.event(ring, reason)
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: "s-"}}
		c.stores(s)
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			assert.Equal(collect, "web-0", c.reread(collect, s).Labels[prefix.ShardLabel(ring.Name)])
		}, patience, period)
	}
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) { assert.Len(collect, shares(s, now), 1) })
	c.lease(ring, "stolen", 600, 0)
	c.change("stolen", `{"spec":{"holderIdentity":"somebody"}}`)
	reported("NameConflict")
	c.remove("stolen")
	for i := range v1alpha1.MaxShards {
		c.lease(ring, fmt.Sprintf("many-%d", i), 600, 0)
	}
	reported("TooManyShards")
}

// TestStatusWritesAreBounded is R4: what is not about the table is written once a second at most, while objects move all the time.
func TestStatusWritesAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{}
	writes := c.countStatusWrites(ring)
	c.balanced(ring, 60, "web-0")
	before, began := writes(), time.Now()
	c.lease(ring, "web-1", 600, 0)
	give := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+prefix.ShardLabel(ring.Name)+`":null}}}`))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		all := c.draining(collect, ring)
		if len(all) > 0 { // one by one
			require.NoError(collect, c.Patch(t.Context(), &all[0], give))
		}
		assert.Empty(collect, all)
		assert.Len(collect, c.shardsOf(collect, ring), 2)
	}, patience, 200*time.Millisecond)
	require.Eventually(t, func() bool { return writes()-before > 2 }, patience, period, "it says how far it has got")
	written := writes() - before
	t.Logf("%d writes in %s", written, time.Since(began))
	assert.LessOrEqual(t, float64(written), time.Since(began).Seconds()+2)
}

// countStatusWrites counts the changes of the status of a ring that leave its table as it is. The ring is not created yet.
func (c *cluster) countStatusWrites(ring *v1alpha1.ClusterRing) (count func() int) {
	c.t.Helper()
	watching, err := client.NewWithWatch(c.config(), client.Options{})
	require.NoError(c.t, err)
	w, err := watching.Watch(c.t.Context(), &v1alpha1.ClusterRingList{}, client.MatchingFields{"metadata.name": ring.Name})
	require.NoError(c.t, err)
	c.t.Cleanup(w.Stop)
	var writes atomic.Int64
	go func() {
		last := &v1alpha1.ClusterRingStatus{}
		for e := range w.ResultChan() {
			is, ok := e.Object.(*v1alpha1.ClusterRing)
			if !ok {
				continue
			}
			s := &is.Status
			hasSameTable := s.Table != nil && last.Table != nil && equality.Semantic.DeepEqual(s.Table.Slots, last.Table.Slots) && equality.Semantic.DeepEqual(s.Table.Shards, last.Table.Shards)
			if hasSameTable && !equality.Semantic.DeepEqual(s, last) {
				writes.Add(1)
			}
			last = s
		}
	}()
	return func() int { return int(writes.Load()) }
}

// TestForcedMove is the rest of R30: with onTimeout Force, an object that is not given away in time is assigned to the other shard.
func TestForcedMove(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Shards.ServiceAccounts, ring.Spec.Fence = []string{"operator"}, v1alpha1.FenceDeny
	ring.Spec.Handover = v1alpha1.Handover{DrainTimeout: &metav1.Duration{Duration: time.Second}, OnTimeout: v1alpha1.Force, Settle: &metav1.Duration{}}
	c.balanced(ring, 30, "web-0")
	c.lease(ring, "web-1", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Len(collect, shares(s, now), 2)
		c.inPlace(collect, ring, s)
		assert.Len(collect, c.shardsOf(collect, ring), 2)
	})
	c.event(ring, "Forced")
	c.counts(ring, "secrets", "forced")
}
