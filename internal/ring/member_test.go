package ring_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/sharding/shardlease"
	"nodekeeper.dev/sharding/shardlease/leasetest"
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

func TestDeadMemberIsReadyThenExpiredThenDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leasetest.NewServer()
		a, b := join(t, c, "a"), join(t, c, "b")
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
		assert.Equal(t, "a", *c.Get("b").Spec.HolderIdentity)
		pass(58 * time.Second)
		assert.NotNil(t, c.Get("b"))
		pass(5 * time.Second)
		assert.Nil(t, c.Get("b"))
	})
}

// A process that replaces others does not treat its dead predecessors as alive.
func TestNewMemberInheritsAgeOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leasetest.NewServer()
		old := join(t, c, "z-old")
		pass(time.Second)
		old.die()
		pass(17 * time.Second)
		a := join(t, c, "a")
		pass(time.Second)
		assert.Equal(t, []string{"a"}, a.View().Ready())
		assert.Equal(t, shardlease.Expired, states(a)["z-old"])
		pass(28 * time.Second)
		assert.Equal(t, "z-old", *c.Get("z-old").Spec.HolderIdentity, "it is taken over only after the same time on the own clock")
		pass(3 * time.Second)
		assert.Equal(t, "a", *c.Get("z-old").Spec.HolderIdentity)
	})
}

// Stored times count only for Leases that existed before, until their next renewal.
func TestWrongClockEndsNoPlace(t *testing.T) {
	for name, clock := range map[string]time.Duration{"behind": -time.Hour, "ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := leasetest.NewServer()
				c.Clock = clock
				b := join(t, c, "b")
				a := join(t, c, "a")
				pass(6 * time.Second)
				for range 100 {
					pass(time.Second)
					require.Equal(t, []string{"a", "b"}, a.View().Ready())
					require.Equal(t, []string{"a", "b"}, b.View().Ready())
				}
				assert.Equal(t, "b", *c.Get("b").Spec.HolderIdentity)
			})
		})
	}
}

func TestStandbyMemberOwnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leasetest.NewServer()
		a, b := join(t, c, "a"), join(t, c, "b")
		pass(time.Second)
		b.SetServing(false)
		pass(time.Millisecond)
		for _, m := range []*replica{a, b} {
			assert.Equal(t, []string{"a"}, m.View().Ready())
		}
		assert.Equal(t, ring.Place{Owner: "a", Rank: 1}, b.Place("key"))
		assert.Equal(t, "true", c.Get("b").Annotations[ring.StandbyKey(label)])
		assert.Equal(t, shardlease.Ready, states(a)["b"])
		assert.False(t, a.Peers()[0].Serving)
		b.SetServing(true)
		pass(time.Millisecond)
		assert.Equal(t, []string{"a", "b"}, a.View().Ready())
		assert.Empty(t, c.Get("b").Annotations)
	})
}

// [ring.Member.Peers] includes every member that joined before.
func TestConcurrentJoinersSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leasetest.NewServer()
		assert.False(t, ring.New(ring.Config{Config: shardlease.Config{Client: c.Client(), Name: "x"}, GroupLabel: label, Group: "web"}).Joined())
		a := join(t, c, "a")
		a.leave() // leaves a Lease behind
		a = join(t, c, "a")
		b := join(t, c, "b")
		assert.True(t, a.Joined())
		assert.True(t, b.Joined())
		assert.Len(t, b.Peers(), 1)
	})
}

func TestEverySubscriberIsNotifiedOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leasetest.NewServer()
		a := join(t, c, "a")
		pass(4 * time.Second)
		one, other := a.Changes(), a.Changes()
		b := join(t, c, "b")
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
		c := leasetest.NewServer()
		a := join(t, c, "a")
		changes := a.RingChanges()
		b := join(t, c, "b")
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
