package program

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// duration is the duration in seconds of Leases whose shards die in a test. Each state of such a
// shard lasts that long and must be observed, and a shard that a test keeps alive must not die even
// if the machine stalls for 20 seconds.
const duration = 12

// TestLeasesAreBornExpireAreTakenOverAndGo covers R5, R9, R10, R12 and R14 with three shards whose
// Leases are created by hand.
func TestLeasesAreBornExpireAreTakenOverAndGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{Duration: time.Second}
	c.create(ring)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.True(t, meta.IsStatusConditionFalse(s.Conditions, "Ready"), "no shard: NoAvailableShard")
	})
	for _, name := range []string{"web-0", "web-1", "web-2"} {
		c.lease(ring, name, 600, 0)
	}
	killed := c.expires(ring)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, "dead", states(s)["web-1"])
		assert.Equal(t, map[string]int{"web-0": 512, "web-2": 512}, shares(s, now))
	})
	assert.GreaterOrEqual(t, time.Since(killed), 2*duration*time.Second, "not before it was silent for twice its duration")
	taken := c.stored(t, "web-1")
	assert.Equal(t, "sharder", *taken.Spec.HolderIdentity)
	assert.EqualValues(t, 2*duration, *taken.Spec.LeaseDurationSeconds)
	death := c.event(ring, "ShardDead")
	if assert.NotNil(t, death.Related) {
		assert.Equal(t, c.namespace+"/web-1", death.Related.Namespace+"/"+death.Related.Name, "events about several shards are not merged")
	}

	c.change("web-2", `{"metadata":{"annotations":{"`+prefix.LeavingAnnotation()+`":"true"}}}`)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 1024}, shares(s, now))
		assert.Equal(t, []string{"web-0", "web-2"}, s.Table.Shards, "a leaving shard keeps its objects until they are drained")
	})
	c.change("web-2", `{"spec":{"holderIdentity":""}}`)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, []string{"web-0"}, s.Table.Shards)
	})
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Nil(collect, c.stored(collect, "web-1"), "deleted a minute after its death")
	}, patience, 100*time.Millisecond)
}

// expires kills web-1 of three shards once all are ready, and returns after it was observed as
// silent but not dead. If the machine stalls for so long that this state is not observed, web-1 is
// revived for another attempt.
func (c *cluster) expires(ring *v1alpha1.ClusterRing) (killed time.Time) {
	c.t.Helper()
	renewed := func() string { return `"renewTime":"` + metav1.NowMicro().UTC().Format(metav1.RFC3339Micro) + `"` }
	hasExpired := false
	for n := 0; n < 5 && !hasExpired; n++ {
		c.change("web-1", `{"spec":{"holderIdentity":"web-1","leaseDurationSeconds":600,`+renewed()+`}}`)
		c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			assert.Equal(t, map[string]int{"web-0": 342, "web-1": 341, "web-2": 341}, shares(s, now))
			assert.EqualValues(t, 3, s.AvailableShards)
			assert.True(t, meta.IsStatusConditionTrue(s.Conditions, "Ready"))
			assert.Equal(t, "ready", c.stored(t, "web-1").Labels[prefix.StateLabel()])
		})
		table := c.status(c.t, ring).Table
		killed = time.Now()
		c.change("web-1", fmt.Sprintf(`{"spec":{"leaseDurationSeconds":%d,%s}}`, duration, renewed()))
		c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			state := states(s)["web-1"]
			require.Contains(t, []string{"expired", "dead"}, state)
			if hasExpired = state == "expired"; hasExpired {
				assert.Equal(t, map[string]int{"web-0": 512, "web-2": 512}, shares(s, next), "it gets no new objects")
				assert.Equal(t, table.Slots, s.Table.Slots, "and keeps its own")
			}
		})
	}
	require.True(c.t, hasExpired, "it was never observed as silent")
	return killed
}

// event waits for an event about a ring.
func (c *cluster) event(ring *v1alpha1.ClusterRing, reason string) *eventsv1.Event {
	c.t.Helper()
	return c.eventOf("ClusterRing", ring.Name, reason)
}

// eventOf waits for an event about a cluster-scoped object.
func (c *cluster) eventOf(kind, name, reason string) (found *eventsv1.Event) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		events := &eventsv1.EventList{}
		require.NoError(t, c.List(c.t.Context(), events))
		for i := range events.Items {
			if e := &events.Items[i]; e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == reason {
				found = e
				return
			}
		}
		assert.Fail(t, "no event", reason)
	}, patience, period)
	return found
}

// TestClockOfAShardDoesNotMatter covers R7 and F15: a shard whose clock is off by an hour is not
// dead, and a shard that stops is.
func TestClockOfAShardDoesNotMatter(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.create(c.ring(""))
	for name, off := range map[string]time.Duration{"early": -time.Hour, "late": time.Hour} {
		c.lease(ring, name, duration, off)
		c.renew(name, duration*time.Second/3, off)
	}
	c.lease(ring, "stopped", duration, time.Hour)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]string{"early": "ready", "late": "ready", "stopped": "dead"}, states(s))
	})
}

// TestShardThatDiedWhileNoSharderRanIsFoundSoon covers R8: its Lease is old when the sharder first
// observes it, and its objects are reassigned at once.
func TestShardThatDiedWhileNoSharderRanIsFoundSoon(t *testing.T) {
	t.Parallel()
	const long = 15 // seconds
	c := newSite(t)
	ring := c.create(c.ring(""))
	c.lease(ring, "dead", long, 0)
	c.lease(ring, "live", 600, 0)
	orphan := secret(c.namespace, "orphan")
	orphan.Labels = map[string]string{prefix.ShardLabel(ring.Name): "dead"}
	c.stores(orphan)
	require.Eventually(t, func() bool { return time.Since(c.stored(t, "dead").CreationTimestamp.Time) > 2*long*time.Second }, patience, 100*time.Millisecond)
	c.sharder("a")
	began := time.Now()
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]string{"dead": "dead", "live": "ready"}, states(s))
		assert.Equal(t, map[string]int{"live": 1024}, shares(s, now))
		assert.Equal(t, map[string]int{"live": 1}, c.shardsOf(t, ring))
	})
	assert.Less(t, time.Since(began), 25*time.Second, "counting from the first sighting would take 30 s")
}

// TestReplacedLeaderGoesOn covers R37: a replica that does not lead has observed how long each
// Lease was not renewed.
func TestReplacedLeaderGoesOn(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	ring := c.create(c.ring(""))
	first := c.candidate("a")
	c.lease(ring, "web-0", 15, 0)
	c.renew("web-0", time.Second, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 1024}, shares(s, now))
	})
	c.candidate("b")
	generation := c.status(t, ring).Table.Generation
	require.NoError(t, first.Kill())
	c.lease(ring, "web-1", 15, 0)
	c.renew("web-1", time.Second, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 512, "web-1": 512}, shares(s, now))
		assert.Greater(t, s.Table.Generation, generation)
	})
}

// TestKilledLeaderLosesNothing covers the rest of R37: if a sharder is killed while some objects
// are in a hand-over and others wait, the labels contain all the information that the next sharder
// needs. No object moves before its children.
func TestKilledLeaderLosesNothing(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	ring := c.ring("")
	ring.Spec.Handover = v1alpha1.Handover{Settle: &metav1.Duration{}, MaxConcurrentMoves: 10}
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	c.lease(ring, "web-0", 600, 0)
	for i := range 60 {
		c.child(c.secret(fmt.Sprintf("s-%d", i)), fmt.Sprintf("c-%d", i), nil)
	}
	c.create(ring)
	first := c.candidate("a")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 60}, c.shardsOf(t, ring))
		assert.Equal(t, map[string]int{"web-0": 60}, c.childrenOf(t, ring))
		assert.Equal(t, "Balanced", reasonOf(s, "Balanced"))
	})
	c.candidate("b")
	broken := c.watchOrder(ring)
	c.lease(ring, "web-1", 600, 0)
	c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) { assert.Len(t, c.draining(t, ring), 10) })
	parked := c.draining(t, ring)[0]
	require.NoError(t, first.Kill())
	require.NoError(t, c.Patch(t.Context(), &parked, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+prefix.ShardLabel(ring.Name)+`":null}}}`))))
	c.acknowledge(ring, "web-0")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(t, ring, s)
		assert.Positive(t, c.shardsOf(t, ring)["web-1"])
		assert.Equal(t, c.shardsOf(t, ring), c.childrenOf(t, ring), "each has one child")
		assert.Equal(t, s.Table.Generation, s.BalancedGeneration)
		assert.Equal(t, "Balanced", reasonOf(s, "Balanced"))
	})
	assert.Empty(t, broken(), "main objects that were at a shard before their children")
}

// TestLeasesOfOthersDoNotCount covers R2, R10, F1 and F7.
func TestLeasesOfOthersDoNotCount(t *testing.T) {
	t.Parallel()
	c, elsewhere := newCluster(t), newCluster(t)
	one, two := c.ring("-1"), c.ring("-2")
	c.create(one)
	c.create(two)
	c.lease(one, "web-0", 600, 0)
	c.lease(two, "web-1", 600, 0)
	elsewhere.lease(one, "web-2", 600, 0)
	long := strings.Repeat("n", 64)
	c.lease(one, long, 600, 0)
	for ring, want := range map[*v1alpha1.ClusterRing]string{one: "web-0", two: "web-1"} {
		c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			assert.Equal(t, map[string]string{want: "ready"}, states(s))
			assert.Equal(t, map[string]int{want: 1024}, shares(s, now))
		})
	}
	c.eventually(one, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		accepted := meta.FindStatusCondition(s.Conditions, "ShardsAccepted")
		require.NotNil(t, accepted)
		assert.Equal(t, metav1.ConditionFalse, accepted.Status)
		assert.Equal(t, "InvalidShardName", accepted.Reason)
		assert.Contains(t, accepted.Message, long)
	})
	c.event(one, "InvalidShardName")
}

// A live shard recreates its Lease and may be working on its objects until then. A shard is dead
// only if it stays away; this includes a shard that no sharder has ever observed.
func TestLeaseThatIsDeletedDoesNotEndItsShard(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.create(c.ring(""))
	c.lease(ring, "web-0", 600, 0)
	c.lease(ring, "web-1", duration, 0)
	stop := c.renew("web-1", duration*time.Second/3, 0)
	halves := map[string]int{"web-0": 512, "web-1": 512}
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) { assert.Equal(t, halves, shares(s, now)) })
	table := c.status(t, ring).Table
	c.remove("web-1")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 1024}, shares(s, next), "it gets no new objects")
		assert.Equal(t, table.Slots, s.Table.Slots, "and keeps its own")
	})
	c.lease(ring, "web-1", duration, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, halves, shares(s, next))
		assert.Equal(t, table.Slots, s.Table.Slots)
	})
	stop()
	removed := time.Now()
	c.remove("web-1")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 1024}, shares(s, now))
		assert.Equal(t, []string{"web-0"}, s.Table.Shards)
	})
	assert.GreaterOrEqual(t, time.Since(removed), 2*duration*time.Second-time.Second)
}

// TestLeaseThatAnotherClientTakesDoesNotEndItsShard: the shard detects the other holder at its next
// renewal, and may be working until then.
func TestLeaseThatAnotherClientTakesDoesNotEndItsShard(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.create(c.ring(""))
	c.lease(ring, "web-0", 600, 0)
	c.lease(ring, "web-1", duration, 0)
	c.renew("web-1", duration*time.Second/3, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 512, "web-1": 512}, shares(s, now))
	})
	taken := time.Now()
	c.change("web-1", `{"spec":{"holderIdentity":"another"}}`)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 1024}, shares(s, now))
		assert.Equal(t, []string{"web-0"}, s.Table.Shards)
		assert.Equal(t, "NameConflict", reasonOf(s, "ShardsAccepted"))
	})
	assert.GreaterOrEqual(t, time.Since(taken), 2*duration*time.Second-time.Second)
}

// remove deletes a Lease.
func (c *cluster) remove(name string) {
	c.t.Helper()
	require.NoError(c.t, c.Delete(c.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}))
}

// The default equals that of the shards of the library: a script may omit the duration.
func TestLeaseWithoutADurationLastsFifteenSeconds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.create(c.ring(""))
	c.lease(ring, "web-0", 600, 0)
	began := time.Now()
	c.change("web-0", `{"spec":{"leaseDurationSeconds":null}}`)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) { assert.Equal(t, "dead", states(s)["web-0"]) })
	assert.Greater(t, time.Since(began), 28*time.Second)
}

// A table that a user has broken is computed again.
func TestEditedStatusIsMended(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.create(c.ring(""))
	c.lease(ring, "web-0", 600, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 1024}, shares(s, now))
	})
	stored := &v1alpha1.ClusterRing{}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(ring), stored))
		stored.Status.Table.Slots[5] = 7
		require.NoError(collect, c.Status().Update(context.WithoutCancel(t.Context()), stored))
	}, patience, period)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Greater(t, s.Table.Generation, stored.Status.Table.Generation)
		assert.Zero(t, s.Table.Slots[5])
	})
}
