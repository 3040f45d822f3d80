package nodelock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodelock"
)

func TestDoWorksUnderLeaseAndDeletesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		start := time.Now()
		worked := false
		err := nodelock.New(c, namespace, "me").Do(t.Context(), node, func(ctx context.Context) error {
			worked = true
			held := stored(t, c, namespace)
			if assert.NotNil(t, held) {
				assert.Equal(t, "me", *held.Spec.HolderIdentity)
				assert.Equal(t, int32(nodelock.LeaseDuration/time.Second), *held.Spec.LeaseDurationSeconds)
			}
			return ctx.Err()
		})
		require.NoError(t, err)
		assert.True(t, worked)
		assert.Nil(t, stored(t, c, namespace))
		assert.Zero(t, time.Since(start), "a free lock costs no time")
	})
}

func TestShortLockCostsTwoWritesAndNoRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults.Log{}
		l := nodelock.New(faults.Client(newFake(), log), namespace, "me")
		for range 3 {
			require.NoError(t, l.Do(t.Context(), node, work(400*time.Millisecond)))
		}
		assert.Equal(t, []faults.Verb{"create", "delete", "create", "delete", "create", "delete"}, writes(log))
		assert.Len(t, log.Entries(), 6)
	})
}

func TestLongWorkRenewsTheLockOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renewals := &faults.Log{Calls: faults.Calls{Verb: faults.Update}}
		c := newFake()
		start := time.Now()
		require.NoError(t, nodelock.New(faults.Client(c, renewals), namespace, "me").Do(t.Context(), node, work(30*time.Second)))
		assert.Equal(t, 30*time.Second, time.Since(start), "the work was not cut short")
		assert.InDelta(t, 30, renewals.Hits(), 1)
		assert.Nil(t, stored(t, c, namespace))
	})
}

func TestDoReturnsTheErrorOfWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		l := nodelock.New(c, namespace, "me")
		errWork := errors.New("work went wrong")
		require.ErrorIs(t, l.Do(t.Context(), node, func(context.Context) error { return errWork }), errWork)
		assert.Nil(t, stored(t, c, namespace), "the lock is released all the same")
		require.NoError(t, l.Do(t.Context(), node, idle), "and can be taken again")
	})
}

func TestHeldLockIsErrHeldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		start := time.Now()
		require.NoError(t, c.Create(t.Context(), lease(namespace, "other", start)))
		err := nodelock.New(c, namespace, "me").Do(t.Context(), node, func(context.Context) error {
			assert.Fail(t, "worked without the lock")
			return nil
		})
		require.ErrorIs(t, err, nodelock.ErrHeld)
		assert.Zero(t, time.Since(start))
		assert.Equal(t, "other", *stored(t, c, namespace).Spec.HolderIdentity)
	})
}

func TestLosingTheRaceForAFreeLockIsErrHeldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		faster := &faults.Race{Calls: faults.Calls{Verb: faults.Create}, First: func(ctx context.Context) {
			assert.NoError(t, c.Create(ctx, lease(namespace, "other", time.Now())))
		}}
		start := time.Now()
		require.ErrorIs(t, nodelock.New(faults.Client(c, faster), namespace, "me").Do(t.Context(), node, idle), nodelock.ErrHeld)
		assert.Zero(t, time.Since(start))
	})
}

// tryEverySecond calls Do until it gets the lock, and returns how long that took.
func tryEverySecond(t *testing.T, l *nodelock.Locker) time.Duration {
	t.Helper()
	start := time.Now()
	for time.Since(start) < time.Minute {
		attempt, taken := time.Now(), time.Duration(0)
		err := l.Do(t.Context(), node, func(context.Context) error {
			taken = time.Since(start)
			return nil
		})
		if err == nil {
			return taken
		}
		require.ErrorIs(t, err, nodelock.ErrHeld)
		require.Zero(t, time.Since(attempt), "a held lock costs no time")
		time.Sleep(time.Second)
	}
	require.Fail(t, "the lock was never taken over")
	return 0
}

func TestLockOfDeadHolderIsTakenOverAfterLeaseDuration(t *testing.T) {
	for name, renewed := range map[string]time.Duration{
		"renewed just now":                           0,
		"by a clock that is an hour behind":          -time.Hour,
		"by a clock that is an hour before this one": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFake()
				require.NoError(t, c.Create(t.Context(), lease(namespace, "dead", time.Now().Add(renewed))))
				taken := tryEverySecond(t, nodelock.New(c, namespace, "me"))
				assert.GreaterOrEqual(t, taken, nodelock.LeaseDuration)
				assert.LessOrEqual(t, taken, nodelock.LeaseDuration+time.Second)
				assert.Nil(t, stored(t, c, namespace))
			})
		})
	}
}

func TestLiveHolderIsNeverTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		done := make(chan error)
		go func() { done <- nodelock.New(c, namespace, "holder").Do(t.Context(), node, work(30*time.Second)) }()
		synctest.Wait()
		taken := tryEverySecond(t, nodelock.New(c, namespace, "me"))
		require.NoError(t, <-done)
		assert.GreaterOrEqual(t, taken, 30*time.Second)
		assert.LessOrEqual(t, taken, 31*time.Second, "a lock that is released is free at once")
	})
}

func TestOneGoroutineOfProcessHasTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		l := nodelock.New(c, namespace, "me")
		done := make(chan error)
		go func() { done <- l.Do(t.Context(), node, work(10*time.Second)) }()
		synctest.Wait()
		start := time.Now()
		require.ErrorIs(t, l.Do(t.Context(), node, idle), nodelock.ErrHeld)
		require.NoError(t, l.Do(t.Context(), "node-2", idle), "another node is not concerned")
		assert.Zero(t, time.Since(start))
		require.NoError(t, <-done)
		require.NoError(t, l.Do(t.Context(), node, idle))
	})
}

func TestRenewedLockIsNotTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		l := nodelock.New(c, namespace, "me")
		require.NoError(t, c.Create(t.Context(), lease(namespace, "other", time.Now())))
		require.ErrorIs(t, l.Do(t.Context(), node, idle), nodelock.ErrHeld)
		time.Sleep(nodelock.LeaseDuration - time.Millisecond)
		renewed := stored(t, c, namespace)
		renewed.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
		require.NoError(t, c.Update(t.Context(), renewed)) // missed by the last attempt
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, l.Do(t.Context(), node, idle), nodelock.ErrHeld)
		assert.Equal(t, nodelock.LeaseDuration, l.HeldFor(node))
	})
}

func TestCancelledDoReleasesTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		start := time.Now()
		err := nodelock.New(faults.Client(c), namespace, "me").Do(ctx, node, work(time.Minute))
		require.ErrorIs(t, err, context.Canceled, "the error of work")
		assert.Equal(t, 10*time.Second, time.Since(start))
		assert.Nil(t, stored(t, c, namespace))
	})
}

func TestCancelledDoTakesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l := nodelock.New(faults.Client(c), namespace, "me")
		require.ErrorIs(t, l.Do(ctx, node, idle), context.Canceled)
		assert.Nil(t, stored(t, c, namespace))
		require.NoError(t, l.Do(t.Context(), node, idle))
	})
}

// stopping is a process that is stopped during a call: the call takes effect, but its response
// arrives after the end of its context, if that ends with the process.
type stopping struct {
	verb faults.Verb
	end  func()
}

func (f *stopping) Do(ctx context.Context, call faults.Call, next func(context.Context) error) error {
	if call.Verb != f.verb {
		return next(ctx)
	}
	err := next(context.WithoutCancel(ctx))
	f.end()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func TestLockTakenDuringCancellationIsReleased(t *testing.T) {
	for name, tc := range map[string]struct {
		verb   faults.Verb
		before []client.Object
	}{
		"by a create":  {verb: faults.Create},
		"by an update": {verb: faults.Update, before: []client.Object{lease(namespace, "me", time.Now())}},
	} {
		t.Run(name, func(t *testing.T) {
			c := faults.Fake().WithObjects(tc.before...).Build()
			ctx, cancel := context.WithCancel(t.Context())
			end := &stopping{verb: tc.verb, end: cancel}
			err := nodelock.New(faults.Client(c, end), namespace, "me").Do(ctx, node, work(time.Minute))
			require.ErrorIs(t, err, context.Canceled)
			assert.Nil(t, stored(t, c, namespace))
		})
	}
}
