package program

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

// TestBadLeasesAreReported covers R10: Leases that are not accepted cause an event, and creates
// succeed. TestLeasesOfOthersDoNotCount covers the third reason.
func TestBadLeasesAreReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{Duration: 10 * time.Minute} // no other shard gets slots
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
	c.change("stolen", `{"spec":{"holderIdentity":"another"}}`)
	reported("NameConflict")
	c.remove("stolen")
	for i := range v1alpha1.MaxShards {
		c.lease(ring, fmt.Sprintf("many-%d", i), 600, 0)
	}
	reported("TooManyShards")
}

// TestStatusWritesAreBounded covers R4: changes that do not affect the table are written at most
// once a second, even while objects move continuously.
func TestStatusWritesAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{}
	writes := c.countStatusWrites(ring)
	c.balanced(ring, 60, "web-0")
	before, began := writes(), time.Now()
	c.lease(ring, "web-1", 600, 0)
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+prefix.ShardLabel(ring.Name)+`":null}}}`))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		all := c.draining(collect, ring)
		if len(all) > 0 { // one at a time
			require.NoError(collect, c.Patch(t.Context(), &all[0], release))
		}
		assert.Empty(collect, all)
		assert.Len(collect, c.shardsOf(collect, ring), 2)
	}, patience, 200*time.Millisecond)
	require.Eventually(t, func() bool { return writes()-before > 2 }, patience, period, "progress is reported")
	written := writes() - before
	t.Logf("%d writes in %s", written, time.Since(began))
	assert.LessOrEqual(t, float64(written), time.Since(began).Seconds()+2)
}

// countStatusWrites counts status changes of a ring that do not change its table. The ring is not
// created yet.
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
