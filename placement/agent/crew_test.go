package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/contract"
)

// workerFunc is a function as a Worker.
type workerFunc func(ctx context.Context, r Replica, ready func()) error

func (f workerFunc) Work(ctx context.Context, r Replica, ready func()) error { return f(ctx, r, ready) }

var unit = contract.Unit{UID: "q", Index: 3}

// handleFor handles events for some time.
func (c *crew) handleFor(ctx context.Context, d time.Duration) {
	for timeout := time.After(d); ; {
		select {
		case e := <-c.events:
			c.handle(ctx, e)
		case <-timeout:
			return
		}
	}
}

func TestFailingWorkerIsCalledAgainLaterAndLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var calls []time.Duration
		c := newCrew(workerFunc(func(context.Context, Replica, func()) error {
			calls = append(calls, time.Since(begin))
			return errors.New("no broker")
		}))
		c.start(t.Context(), unit, Replica{Epoch: 7})
		c.handleFor(t.Context(), 200*time.Second)
		assert.Equal(t, []time.Duration{0, 1, 3, 7, 15, 31, 63, 123, 183}, inSeconds(calls))
		assert.Equal(t, contract.Work{Epoch: 7, Failure: "no broker"}, c.work()[unit])
		c.stop(unit)
		assert.Empty(t, c.jobs, "no Worker runs, so the job ends at once")
		c.handleFor(t.Context(), 200*time.Second)
		assert.Len(t, calls, 9)
	})
}

func inSeconds(all []time.Duration) []time.Duration {
	seconds := make([]time.Duration, len(all))
	for i := range all {
		seconds[i] = all[i] / time.Second
	}
	return seconds
}

func TestWorkerThatWorkedForLongStartsAgainSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := newCrew(workerFunc(func(_ context.Context, _ Replica, ready func()) error {
			calls++
			ready()
			time.Sleep(2 * time.Minute)
			return nil
		}))
		c.start(t.Context(), unit, Replica{})
		c.handleFor(t.Context(), time.Minute)
		assert.True(t, c.work()[unit].Working)
		c.handleFor(t.Context(), time.Minute+time.Millisecond)
		assert.Equal(t, contract.Work{Failure: "ended by itself"}, c.work()[unit])
		c.handleFor(t.Context(), 6*time.Minute+3*time.Second)
		assert.Equal(t, 4, calls, "after two minutes of work and one second of waiting each")
		c.stopAll(t.Context())
		c.handleFor(t.Context(), 3*time.Minute)
		assert.Empty(t, c.jobs)
	})
}

func TestJobEndsWhenItsWorkerHasReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(workerFunc(func(ctx context.Context, _ Replica, ready func()) error {
			ready()
			<-ctx.Done()
			time.Sleep(3 * time.Second)
			return errors.New("late")
		}))
		c.start(t.Context(), unit, Replica{})
		c.handleFor(t.Context(), time.Second)
		c.stop(unit)
		c.handleFor(t.Context(), 2*time.Second)
		require.Contains(t, c.jobs, unit)
		assert.False(t, c.work()[unit].Working)
		c.handleFor(t.Context(), 2*time.Second)
		assert.Empty(t, c.jobs)
	})
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	good := Options{Namespace: "n", Pool: "p", Pod: "w", PodUID: "u"}
	o, err := good.completed()
	require.NoError(t, err)
	assert.Equal(t, DefaultLeaseDuration, o.LeaseDuration)
	o.Renewed(0)
	for want, change := range map[string]func(*Options){
		"required":       func(o *Options) { o.Pod = "" },
		"names":          func(o *Options) { o.Pool = "a/b" },
		"capacity":       func(o *Options) { o.Capacity = -1 },
		"lease duration": func(o *Options) { o.LeaseDuration = 1500 * time.Millisecond },
		"OnLostLease":    func(o *Options) { o.OnLostLease = 2 },
	} {
		bad := good
		change(&bad)
		_, err := bad.completed()
		require.ErrorContains(t, err, want)
	}
	// Programs are gone before the takeover, also if clock rates differ by 30 %.
	for _, d := range []time.Duration{time.Second, 3 * time.Second, 15 * time.Second, time.Minute} {
		assert.Less(t, float64(RenewDeadline(d)+LostStopTime(d)), 2*0.7*float64(d))
	}
}
