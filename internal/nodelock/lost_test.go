package nodelock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodelock"
)

func TestWorkIsCancelledOnTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		const taken = 10500 * time.Millisecond
		time.AfterFunc(taken, func() {
			l := stored(t, c, namespace)
			l.Spec.HolderIdentity = new("other")
			assert.NoError(t, c.Update(t.Context(), l))
		})
		start := time.Now()
		err := nodelock.New(faults.Client(c), namespace, "me").Do(t.Context(), node, work(time.Minute))
		require.ErrorIs(t, err, context.Canceled)
		assert.Less(t, time.Since(start), taken+nodelock.LeaseDuration)
		if left := stored(t, c, namespace); assert.NotNil(t, left, "the other's Lease was deleted") {
			assert.Equal(t, "other", *left.Spec.HolderIdentity)
		}
	})
}

func TestWorkIsCancelledBeforeTakeoverInOutage(t *testing.T) {
	for name, fault := range map[string]faults.Fault{
		"refused":    &faults.Outage{Calls: faults.Calls{Verb: faults.Update, Skip: 3}},
		"unanswered": &faults.Slow{Calls: faults.Calls{Verb: faults.Update, Skip: 3}, Delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFake()
				log := &faults.Log{Calls: faults.Calls{Verb: faults.Update}}
				start := time.Now()
				err := nodelock.New(faults.Client(c, log, fault), namespace, "me").Do(t.Context(), node, work(time.Minute))
				require.ErrorIs(t, err, context.Canceled)
				lastRenewal := start.Add(3 * time.Second) // the three successful ones
				assert.Less(t, time.Since(lastRenewal), nodelock.LeaseDuration)
				assert.Nil(t, stored(t, c, namespace), "deletes are answered: it is released")
			})
		})
	}
}

func TestShortOutageDoesNotDisturbWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		down := &faults.Outage{Calls: faults.Calls{Skip: 5, Times: 4}} // a failing renewal sends two requests
		require.NoError(t, nodelock.New(faults.Client(c, down), namespace, "me").Do(t.Context(), node, work(30*time.Second)))
		assert.Equal(t, 4, down.Hits())
		assert.Nil(t, stored(t, c, namespace))
	})
}

func TestDeletedLeaseIsTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		time.AfterFunc(10500*time.Millisecond, func() { assert.NoError(t, c.Delete(t.Context(), stored(t, c, namespace))) })
		time.AfterFunc(12*time.Second, func() { assert.NotNil(t, stored(t, c, namespace)) })
		require.NoError(t, nodelock.New(c, namespace, "me").Do(t.Context(), node, work(30*time.Second)))
		assert.Nil(t, stored(t, c, namespace))
	})
}

func TestLostResponsesLeaveNoLock(t *testing.T) {
	for name, tc := range map[string]struct {
		lost faults.Fault
		dead bool // another process held the lock and crashed
	}{
		"of a create":            {lost: &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Create, Times: 1}}},
		"of a delete":            {lost: &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Delete, Times: 1}}},
		"of a renewal":           {lost: &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Update, Times: 1}}},
		"of the last renewal":    {lost: &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Update, Skip: 8}}},
		"of a takeover":          {lost: &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Update, Times: 1}}, dead: true},
		"of every third write":   {lost: &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Update, Skip: 1, Times: 3}}},
		"of two creates":         {lost: &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Create, Times: 2}}},
		"of a read of the Lease": {lost: &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Get, Times: 1}}, dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFake()
				if tc.dead {
					require.NoError(t, c.Create(t.Context(), lease(namespace, "dead", time.Now())))
				}
				l := nodelock.New(faults.Client(c, tc.lost), namespace, "me")
				worked := 0
				for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(time.Second) {
					err := l.Do(t.Context(), node, func(ctx context.Context) error {
						worked++
						return work(9500 * time.Millisecond)(ctx)
					})
					if err == nil {
						break
					}
				}
				assert.Positive(t, worked)
				assert.Nil(t, stored(t, c, namespace))
			})
		})
	}
}

func TestConflictAfterLostResponseIsErrHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		lost := &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Create, Times: 1}}
		down := &faults.Outage{Calls: faults.Calls{Verb: faults.Update, Times: 1}}
		l := nodelock.New(faults.Client(c, lost, down), namespace, "me")
		require.ErrorContains(t, l.Do(t.Context(), node, idle), "loss of a response")
		require.ErrorContains(t, l.Do(t.Context(), node, idle), "outage")
		taken := stored(t, c, namespace)
		taken.Spec.HolderIdentity = new("other")
		require.NoError(t, c.Update(t.Context(), taken))

		require.ErrorIs(t, l.Do(t.Context(), node, idle), nodelock.ErrHeld)
		assert.Equal(t, "other", *stored(t, c, namespace).Spec.HolderIdentity)
	})
}

func TestUnansweredReleaseEndsDoInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		cancel time.Duration // when Do is cancelled
		limit  time.Duration
	}{
		"while it may work":        {time.Hour, 10 * time.Second},
		"when it is to end":        {0, 2 * time.Second},
		"cancelled while it waits": {3 * time.Second, 5 * time.Second},
		"cancelled too late":       {9 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFake()
				stuck := &faults.Slow{Calls: faults.Calls{Verb: faults.Delete, Times: 1}, Delay: 2 * time.Hour}
				l := nodelock.New(faults.Client(c, stuck), namespace, "me")
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				err := l.Do(ctx, node, func(context.Context) error {
					if tc.cancel == 0 {
						cancel()
					}
					time.AfterFunc(tc.cancel, cancel)
					return nil
				})
				require.ErrorContains(t, err, `releasing the lock of node "node-1"`)
				assert.Equal(t, tc.limit, time.Since(start))
				require.NoError(t, l.Do(t.Context(), node, idle), "this process may take its own lock again")
				assert.Nil(t, stored(t, c, namespace))
			})
		})
	}
}

func TestLateReleaseLeavesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		slow := &faults.Slow{Calls: faults.Calls{Verb: faults.Delete}, Delay: 4 * time.Second}
		require.NoError(t, nodelock.New(faults.Client(c, slow), namespace, "me").Do(t.Context(), node, idle))
		assert.Nil(t, stored(t, c, namespace))
	})
}

func TestOutageWhileTakingIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		down := &faults.Outage{Calls: faults.Calls{Times: 2}}
		l := nodelock.New(faults.Client(c, down), namespace, "me")
		start := time.Now()
		for range 2 {
			err := l.Do(t.Context(), node, idle)
			require.ErrorContains(t, err, "outage")
			require.NotErrorIs(t, err, nodelock.ErrHeld)
		}
		assert.Zero(t, time.Since(start), "the caller decides when to try again")
		require.NoError(t, l.Do(t.Context(), node, idle))
	})
}
