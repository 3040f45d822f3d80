package ring_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/sharding/shardlease"
)

// pass lets time pass and all goroutines run.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func states(m *replica) map[string]shardlease.State {
	all := map[string]shardlease.State{}
	for _, p := range m.Peers() {
		all[p.Name] = p.State
	}
	return all
}

func TestQuietMemberWritesEveryFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a, b := c.join(t, "a"), c.join(t, "b")
		pass(time.Minute)
		assert.Equal(t, []int{13, 13}, []int{a.count(), b.count()})
		assert.Equal(t, []string{"a", "b"}, a.View().Ready())
	})
}

// The stored Lease then always differs from the one that the member sends.
func TestAdmissionDoesNotCauseExtraWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.admit = func(l *coordinationv1.Lease) {
			if c.revision < 1000 { // a member that writes in a busy loop would hang the test
				metav1.SetMetaDataAnnotation(&l.ObjectMeta, "policy.example.com/checked", "true")
			}
		}
		a := c.join(t, "a")
		pass(time.Minute)
		assert.Equal(t, 13, a.count())
		a.set(false, true) // the response is lost, and the Lease is read
		a.Annotate("x", "1")
		pass(time.Millisecond)
		a.set(false, false)
		pass(time.Minute)
		assert.LessOrEqual(t, a.count(), 30)
		assert.Equal(t, map[string]string{"policy.example.com/checked": "true", "x": "1"}, c.get("a").Annotations)
	})
}

func TestDeadMemberIsReadyThenExpiredThenDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a, b := c.join(t, "a"), c.join(t, "b")
		pass(time.Second)
		b.die()
		for _, step := range []struct {
			after time.Duration
			state shardlease.State
			ready []string
		}{
			{13 * time.Second, shardlease.Ready, []string{"a", "b"}},
			{3 * time.Second, shardlease.Expired, []string{"a"}},
			{12 * time.Second, shardlease.Expired, []string{"a"}},
			{3 * time.Second, shardlease.Dead, []string{"a"}},
		} {
			pass(step.after)
			assert.Equal(t, step.state.String(), states(a)["b"].String())
			assert.Equal(t, step.ready, a.View().Ready())
		}
		assert.Equal(t, "a", *c.get("b").Spec.HolderIdentity)
		pass(58 * time.Second)
		assert.NotNil(t, c.get("b"))
		pass(5 * time.Second)
		assert.Nil(t, c.get("b"))
	})
}

// A process that replaces others does not treat its dead predecessors as alive.
func TestNewMemberInheritsAgeOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		old := c.join(t, "z-old")
		pass(time.Second)
		old.die()
		pass(17 * time.Second)
		a := c.join(t, "a")
		pass(time.Second)
		assert.Equal(t, []string{"a"}, a.View().Ready())
		assert.Equal(t, shardlease.Expired, states(a)["z-old"])
		pass(28 * time.Second)
		assert.Equal(t, "z-old", *c.get("z-old").Spec.HolderIdentity, "it is taken over only after the same time on the own clock")
		pass(3 * time.Second)
		assert.Equal(t, "a", *c.get("z-old").Spec.HolderIdentity)
	})
}

// A restarted container has its former name, and its Lease was taken over.
func TestNewProcessWaitsForRestOfTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a, b := c.join(t, "a"), c.join(t, "b")
		pass(time.Second)
		b.die()
		for *c.get("b").Spec.HolderIdentity != "a" {
			pass(time.Second)
		}
		pass(20 * time.Second)
		b = c.join(t, "b")
		pass(8 * time.Second)
		require.Equal(t, []string{"a"}, a.View().Ready(), "a takeover lasts 30 seconds")
		pass(4 * time.Second)
		assert.Equal(t, "b", *c.get("b").Spec.HolderIdentity)
		assert.Equal(t, []string{"a", "b"}, a.View().Ready())
		assert.True(t, b.Joined())
	})
}

// Stored times count only for Leases that existed before, until their next renewal.
func TestWrongClockEndsNoPlace(t *testing.T) {
	for name, clock := range map[string]time.Duration{"behind": -time.Hour, "ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				c.clock = clock
				b := c.join(t, "b")
				a := c.join(t, "a")
				pass(6 * time.Second)
				for range 100 {
					pass(time.Second)
					require.Equal(t, []string{"a", "b"}, a.View().Ready())
					require.Equal(t, []string{"a", "b"}, b.View().Ready())
				}
				assert.Equal(t, "b", *c.get("b").Spec.HolderIdentity)
			})
		})
	}
}

func TestStandbyMemberOwnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a, b := c.join(t, "a"), c.join(t, "b")
		pass(time.Second)
		b.SetServing(false)
		pass(time.Millisecond)
		for _, m := range []*replica{a, b} {
			assert.Equal(t, []string{"a"}, m.View().Ready())
		}
		assert.Equal(t, ring.Place{Owner: "a", Rank: 1}, b.Place("key"))
		assert.Equal(t, "true", c.get("b").Annotations[ring.StandbyKey(label)])
		assert.Equal(t, shardlease.Ready, states(a)["b"])
		assert.False(t, a.Peers()[0].Serving)
		b.SetServing(true)
		pass(time.Millisecond)
		assert.Equal(t, []string{"a", "b"}, a.View().Ready())
		assert.Empty(t, c.get("b").Annotations)
	})
}

func TestAnnotationsAreStoredAtOnceAndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a, b := c.join(t, "a"), c.join(t, "b")
		pass(time.Second)
		changes := b.Changes()
		before := a.count()
		for _, key := range []string{"x", "y", "z", "gone"} {
			a.Annotate(key, "1")
		}
		a.Annotate("gone", "")
		pass(time.Millisecond)
		want := map[string]string{"x": "1", "y": "1", "z": "1"}
		assert.Equal(t, want, c.get("a").Annotations)
		assert.LessOrEqual(t, a.count()-before, 2)
		<-changes
		assert.Equal(t, want, b.Peers()[0].Annotations)
		a.Annotate("x", "1")
		pass(time.Millisecond)
		assert.LessOrEqual(t, a.count()-before, 2, "stored annotations are not written again")
	})
}

func TestAnnotationIsRetriedUntilStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := c.join(t, "a")
		a.set(true, false)
		a.Annotate("x", "1")
		pass(10 * time.Second)
		a.set(false, false)
		pass(time.Second)
		assert.Equal(t, "1", c.get("a").Annotations["x"])
	})
}

func TestNewProcessDropsOldAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := c.join(t, "a")
		a.Annotate("x", "1")
		pass(time.Second)
		a.die()
		again := c.join(t, "a")
		assert.Empty(t, c.get("a").Annotations)
		assert.True(t, again.Joined())
	})
}

// [ring.Member.Peers] includes every member that joined before.
func TestConcurrentJoinersSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		l := &link{cluster: c}
		assert.False(t, ring.New(ring.Config{Config: shardlease.Config{Client: l, Name: "x"}, GroupLabel: label, Group: "web"}).Joined())
		a := c.join(t, "a")
		a.leave() // leaves a Lease behind
		a = c.join(t, "a")
		b := c.join(t, "b")
		assert.True(t, a.Joined())
		assert.True(t, b.Joined())
		assert.Len(t, b.Peers(), 1)
	})
}

func TestEverySubscriberIsNotifiedOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := c.join(t, "a")
		pass(4 * time.Second)
		one, other := a.Changes(), a.Changes()
		b := c.join(t, "b")
		<-one
		<-other
		pass(time.Second)
		b.die()
		pass(11 * time.Second)
		for len(one) > 0 {
			<-one
		}
		start := time.Now()
		for states(a)["b"] == shardlease.Ready {
			<-one // also when a state changes by time alone
		}
		assert.Less(t, time.Since(start), 6*time.Second)
	})
}

func TestRingChangesAreSeparate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := c.join(t, "a")
		changes := a.RingChanges()
		b := c.join(t, "b")
		pass(time.Second)
		require.Len(t, changes, 1, "b has joined")
		<-changes
		pass(time.Minute)
		require.Empty(t, changes, "both have renewed their Leases")
		b.SetServing(false)
		pass(time.Second)
		require.Len(t, changes, 1, "b owns nothing")
		<-changes
		b.SetServing(true)
		pass(time.Second)
		require.Len(t, changes, 1, "b owns nodes again")
		<-changes
		b.die()
		pass(20 * time.Second)
		require.Len(t, changes, 1, "b is not ready")
	})
}

func TestReclaimedLeaseKeepsItsForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := c.join(t, "a")
		pass(time.Second)
		first := c.get("a")
		taken := c.get("a")
		taken.Spec.HolderIdentity, taken.Spec.LeaseDurationSeconds = new("z"), new(int32(30))
		c.put(taken)
		pass(30 * time.Second)
		assert.Equal(t, "z", *c.get("a").Spec.HolderIdentity)
		pass(6 * time.Second)
		back := c.get("a")
		assert.Equal(t, "a", *back.Spec.HolderIdentity)
		assert.EqualValues(t, 15, *back.Spec.LeaseDurationSeconds)
		assert.EqualValues(t, 1, *back.Spec.LeaseTransitions)
		assert.True(t, back.Spec.AcquireTime.After(first.Spec.AcquireTime.Time))
		assert.Equal(t, first.UID, back.UID)
		a.leave()
		released := c.get("a")
		assert.Empty(t, *released.Spec.HolderIdentity)
		assert.True(t, maps.Equal(first.Labels, released.Labels))
	})
}
