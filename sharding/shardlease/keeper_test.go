package shardlease_test

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/shardlease"
	"nodekeeper.dev/sharding/shardlease/leasetest"
)

// name is the name of the shard whose Lease the tests keep.
const name = "a"

// kept is a Keeper that runs over a client of its own.
type kept struct {
	*shardlease.Keeper
	*leasetest.Client

	leave   func()       // ends it and waits until it has ended
	lost    int          // the number of calls of Lost
	setBack atomic.Int32 // the number of calls of SetBack
}

// die ends it like kill -9.
func (k *kept) die() {
	k.Set(leasetest.Down)
	k.leave()
}

// keep starts a Keeper of the default duration, which ends with the test.
func keep(t *testing.T, s *leasetest.Server, annotations map[string]string) *kept {
	t.Helper()
	k := &kept{Client: s.Client()}
	k.Keeper = shardlease.NewKeeper(shardlease.Config{
		Client: k.Client, Namespace: "default", Name: name, Labels: map[string]string{"group": "web"}, Annotations: annotations,
		Lost: func() { k.lost++ }, SetBack: func() { k.setBack.Add(1) },
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.Run(ctx)
	}()
	k.leave = func() {
		cancel()
		<-ended
	}
	t.Cleanup(k.leave)
	synctest.Wait()
	return k
}

// pass lets time pass and all goroutines run.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// take makes another client the holder of the Lease, which is then valid for 30 seconds.
func take(t *testing.T, s *leasetest.Server) {
	t.Helper()
	require.NoError(t, shardlease.TakeOver(t.Context(), s.Client(), s.Get(name), "z"))
}

func holder(s *leasetest.Server) string { return shardlease.Holder(s.Get(name)) }

func TestLeaseIsRenewedEveryFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, nil)
		pass(time.Minute)
		assert.Equal(t, 13, k.Writes())
		assert.Equal(t, time.Now(), k.LastRenewal())
		pass(4 * time.Second)
		k.Renew()
		pass(time.Millisecond)
		assert.Equal(t, 14, k.Writes(), "at once on request")
		pass(4 * time.Second)
		assert.Equal(t, 14, k.Writes(), "the next one is due five seconds later")
	})
}

// The stored Lease then always differs from the one that the keeper sends.
func TestAdmissionDoesNotCauseExtraWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, admitted := leasetest.NewServer(), 0
		s.Admit = func(l *coordinationv1.Lease) {
			if admitted++; admitted < 1000 { // a keeper that writes in a busy loop would hang the test
				metav1.SetMetaDataAnnotation(&l.ObjectMeta, "policy.example.com/checked", "true")
			}
		}
		k := keep(t, s, nil)
		pass(time.Minute)
		assert.Equal(t, 13, k.Writes())
		k.Set(leasetest.Losing) // the Lease is read then
		k.Annotate("x", "1")
		pass(time.Millisecond)
		k.Set(leasetest.Up)
		pass(time.Minute)
		assert.LessOrEqual(t, k.Writes(), 30)
		assert.Equal(t, map[string]string{"policy.example.com/checked": "true", "x": "1"}, s.Get(name).Annotations)
	})
}

func TestRenewalWithoutAnAnswerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, nil)
		first := k.First()
		pass(4 * time.Second)
		k.Set(leasetest.Losing)
		pass(1500 * time.Millisecond) // sent after five seconds; no attempt has followed
		silent, stored := k.LastRenewal(), s.Get(name)
		_, known := k.SentAt(stored)
		require.False(t, known, "no answer has come")
		k.Set(leasetest.Up)
		pass(time.Second)
		sent, known := k.SentAt(stored)
		assert.True(t, known)
		assert.Equal(t, 5*time.Second, sent.Sub(silent))
		assert.Same(t, first, k.First(), "no other client has written the Lease")
		assert.True(t, k.HasStored(stored))
		assert.Zero(t, k.lost)
	})
}

func TestRefusedRenewalIsRetriedEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, nil)
		k.Set(leasetest.Down)
		pass(10 * time.Second)
		assert.Equal(t, 7, k.Writes(), "one at the start, and six from the fifth second on")
		k.Set(leasetest.Up)
		pass(time.Second)
		assert.Less(t, time.Since(k.LastRenewal()), 2*time.Second)
	})
}

// A restarted container has its former name, and its Lease was taken over.
func TestNewProcessWaitsForRestOfTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, nil)
		k.die()
		pass(31 * time.Second)
		take(t, s)
		pass(20 * time.Second)
		again := keep(t, s, nil)
		pass(8 * time.Second)
		require.Equal(t, "z", holder(s), "a takeover lasts 30 seconds")
		require.Nil(t, again.First())
		require.Zero(t, again.LastRenewal())
		pass(4 * time.Second)
		assert.Equal(t, name, holder(s))
		assert.NotNil(t, again.First())
		assert.Zero(t, again.lost, "this process had not held it")
	})
}

func TestReclaimedLeaseKeepsItsForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, nil)
		pass(time.Second)
		first := s.Get(name)
		take(t, s)
		pass(29 * time.Second)
		assert.Equal(t, "z", holder(s))
		assert.Equal(t, 1, k.lost)
		pass(7 * time.Second)
		back := s.Get(name)
		assert.Equal(t, name, shardlease.Holder(back))
		assert.EqualValues(t, 15, *back.Spec.LeaseDurationSeconds)
		assert.EqualValues(t, 1, *back.Spec.LeaseTransitions)
		assert.True(t, back.Spec.AcquireTime.After(first.Spec.AcquireTime.Time))
		assert.Equal(t, first.UID, back.UID)
		assert.False(t, k.HasStored(first), "another client has written it since")
		assert.Equal(t, 1, k.lost)
		k.leave()
		released := s.Get(name)
		assert.Empty(t, shardlease.Holder(released))
		assert.True(t, maps.Equal(first.Labels, released.Labels))
	})
}

// etcd is restored from a backup, and its revisions are higher than before.
func TestLeaseThatIsSetBackIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, nil)
		pass(time.Second)
		backup := s.Get(name)
		pass(time.Minute)
		assert.False(t, shardlease.IsSetBack(s.Get(name), k.Stored()))
		s.Put(backup)
		assert.True(t, shardlease.IsSetBack(s.Get(name), k.Stored()))
		assert.Zero(t, k.setBack.Load())
		pass(5 * time.Second)
		assert.EqualValues(t, 1, k.setBack.Load())
		assert.True(t, s.Get(name).Spec.RenewTime.After(backup.Spec.RenewTime.Time), "it is renewed")
		assert.False(t, shardlease.IsSetBack(s.Get(name), k.Stored()))

		take(t, s)
		pass(time.Minute)
		s.Remove(name)
		pass(5 * time.Second)
		another := keep(t, s, nil)
		pass(time.Minute)
		assert.EqualValues(t, 1, k.setBack.Load(), "another holder, process or Lease is no earlier version")
		assert.Zero(t, another.setBack.Load())
	})
}

func TestAbandonedLeaseStaysHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, nil)
		k.Abandon()
		k.leave()
		assert.Equal(t, name, holder(s))
		assert.Equal(t, 1, k.Writes())
	})
}

// An answer that was lost just before the end must not leave the Lease held.
func TestLeaseIsReleasedAfterALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, nil)
		k.Set(leasetest.Losing)
		k.Renew()
		pass(time.Millisecond)
		k.Set(leasetest.Up)
		k.leave()
		assert.Empty(t, holder(s))
	})
}

func TestAnnotationsAreStoredAtOnceAndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, nil)
		pass(time.Second)
		before := k.Writes()
		for _, key := range []string{"x", "y", "z", "gone"} {
			k.Annotate(key, "1")
		}
		k.Annotate("gone", "")
		pass(time.Millisecond)
		assert.Equal(t, map[string]string{"x": "1", "y": "1", "z": "1"}, s.Get(name).Annotations)
		assert.LessOrEqual(t, k.Writes()-before, 2)
		k.Annotate("x", "1")
		pass(time.Millisecond)
		assert.LessOrEqual(t, k.Writes()-before, 2, "stored annotations are not written again")
	})
}

func TestAnnotationIsRetriedUntilStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, nil)
		k.Set(leasetest.Down)
		k.Annotate("x", "1")
		pass(10 * time.Second)
		k.Set(leasetest.Up)
		pass(time.Second)
		assert.Equal(t, "1", s.Get(name).Annotations["x"])
	})
}

func TestInitialAnnotationsCostNoWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, map[string]string{"version": "1"})
		require.Equal(t, map[string]string{"version": "1"}, s.Get(name).Annotations)
		assert.Equal(t, 1, k.Writes())
		k.Annotate("question", "7")
		pass(time.Second)
		assert.Equal(t, map[string]string{"version": "1", "question": "7"}, s.Get(name).Annotations)
		assert.Equal(t, 2, k.Writes())
		k.leave()
		assert.Equal(t, "1", s.Get(name).Annotations["version"], "a released Lease still has it")
	})
}

// It starts with the same name and other settings, whatever Lease its predecessor left.
func TestRestartedProcessUpdatesItsAnnotations(t *testing.T) {
	for ended, end := range map[string]func(*kept){"released": func(k *kept) { k.leave() }, "killed": (*kept).die} {
		t.Run(ended, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := leasetest.NewServer()
				k := keep(t, s, map[string]string{"version": "1", "old": "x"})
				k.Annotate("asked", "1")
				pass(time.Second)
				end(k)
				again := keep(t, s, map[string]string{"version": "2"})
				pass(time.Second)
				assert.Equal(t, map[string]string{"version": "2"}, s.Get(name).Annotations)
				pass(20 * time.Second)
				assert.LessOrEqual(t, again.Writes(), 7, "one to create it, one after the read, and a renewal each five seconds")
			})
		})
	}
}

func TestTakenLeaseKeepsAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		k := keep(t, s, map[string]string{"version": "1"})
		k.die()
		take(t, s)
		assert.Equal(t, map[string]string{"version": "1"}, s.Get(name).Annotations)
		keep(t, s, map[string]string{"version": "2"})
		pass(40 * time.Second)
		require.Equal(t, name, holder(s), "it has its Lease back")
		assert.Equal(t, map[string]string{"version": "2"}, s.Get(name).Annotations)
	})
}

func TestRecreatedLeaseHasAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.NewServer()
		annotations := map[string]string{"version": "1"}
		k := keep(t, s, annotations)
		annotations["version"] = "the caller's"
		before := s.Get(name)
		s.Remove(name)
		pass(6 * time.Second)
		again := s.Get(name)
		require.NotEqual(t, before.UID, again.UID)
		assert.Equal(t, map[string]string{"version": "1"}, again.Annotations)
		assert.Zero(t, k.lost, "the next renewal recreates a deleted Lease")
		assert.False(t, k.HasStored(before))
		assert.True(t, k.HasStored(again))
	})
}
