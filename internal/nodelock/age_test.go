package nodelock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/test/controlplane"
)

// stamped is a cluster in memory that stores when a Lease was last written, by a clock that is
// ahead by the given time.
func stamped(ahead time.Duration) client.WithWatch {
	return interceptor.NewClient(faults.Fake().WithReturnManagedFields().Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			for i, f := range obj.GetManagedFields() {
				obj.GetManagedFields()[i].Time = new(metav1.NewTime(f.Time.Add(ahead).Truncate(time.Second)))
			}
			return err
		},
	})
}

// The wait counts from the last stored write, for every process.
func TestNewProcessTakesOverLockOfDeadHolder(t *testing.T) {
	for name, tc := range map[string]struct {
		dead, ahead time.Duration
		holder      time.Duration // how far ahead the holder's clock is
		left        time.Duration
	}{
		"just now":                        {0, 0, 0, 5 * time.Second},
		"three seconds ago":               {3 * time.Second, 0, 0, 2 * time.Second},
		"parts of a second ago":           {3400 * time.Millisecond, 0, 0, 1600 * time.Millisecond},
		"longer than the duration":        {6 * time.Second, 0, 0, 0},
		"long ago":                        {time.Hour, 0, 0, 0},
		"by a clock that is ahead":        {time.Hour, 2 * time.Hour, 0, 5 * time.Second},
		"that has a clock that is ahead":  {3400 * time.Millisecond, 0, time.Minute, 2 * time.Second},
		"that has a clock that is behind": {3400 * time.Millisecond, 0, -time.Minute, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := stamped(tc.ahead)
				time.Sleep(600 * time.Millisecond) // stored times have whole seconds
				require.NoError(t, c.Create(t.Context(), lease(namespace, "dead", time.Now().Add(tc.holder))))
				time.Sleep(tc.dead)
				started := time.Now()
				l := nodelock.New(c, namespace, "me")
				if tc.left > 0 {
					require.ErrorIs(t, l.Do(t.Context(), node, idle), nodelock.ErrHeld)
					require.Equal(t, tc.left, l.HeldFor(node))
					time.Sleep(l.HeldFor(node))
				}
				require.NoError(t, l.Do(t.Context(), node, idle))
				assert.Equal(t, tc.left, time.Since(started))
			})
		})
	}
}

// None of them lives as long as a lock lasts.
func TestNewProcessesInheritTheAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stamped(0)
		require.NoError(t, c.Create(t.Context(), lease(namespace, "dead", time.Now())))
		start := time.Now()
		for nodelock.New(c, namespace, "short-lived").Do(t.Context(), node, idle) != nil {
			require.Less(t, time.Since(start), time.Minute)
			time.Sleep(time.Second)
		}
		assert.Equal(t, nodelock.LeaseDuration, time.Since(start))
	})
}

func TestLiveHolderSurvivesWrongClocks(t *testing.T) {
	for _, ahead := range []time.Duration{-3 * time.Second, -1500 * time.Millisecond, 0, 1500 * time.Millisecond, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := stamped(ahead)
				done := make(chan error)
				go func() { done <- nodelock.New(c, namespace, "holder").Do(t.Context(), node, work(30*time.Second)) }()
				synctest.Wait()
				for range 59 {
					require.ErrorIs(t, nodelock.New(c, namespace, "new").Do(t.Context(), node, idle), nodelock.ErrHeld)
					time.Sleep(500 * time.Millisecond)
				}
				require.NoError(t, <-done)
			})
		})
	}
}

// A renewal changes only the time, and that is stored.
func TestAPIServerStoresWhenALockWasRenewed(t *testing.T) {
	c := newClient(t)
	ns := controlplane.Namespace(t, c)
	renewed := func(ctx context.Context) error {
		first := lastWrite(t, c, ns)
		for lastWrite(t, c, ns).Equal(first) && ctx.Err() == nil {
			<-time.After(100 * time.Millisecond)
		}
		return ctx.Err()
	}
	var err error
	for range 5 { // a stalled machine loses the lock
		if err = nodelock.New(c, ns, "me").Do(t.Context(), node, renewed); err == nil {
			break
		}
	}
	require.NoError(t, err)
}

func lastWrite(t *testing.T, c client.Reader, ns string) time.Time {
	t.Helper()
	var last time.Time
	held := stored(t, c, ns)
	require.NotNil(t, held)
	for _, f := range held.ManagedFields {
		if f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}
