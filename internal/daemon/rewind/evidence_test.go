package rewind_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/sharding/shardlease"
)

// renewals are evidence for everything observed before the last of them.
type renewals struct {
	mu    sync.Mutex
	at    []time.Time
	err   error
	asked int
	takes time.Duration // how long a response takes
}

var _ rewind.Evidence = (*renewals)(nil)

func (r *renewals) Confirm(_ context.Context, before time.Time) (until time.Time, err error) {
	time.Sleep(r.takes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	for _, at := range r.at {
		if at.Before(before) {
			until = at
		}
	}
	if r.err == nil && until.IsZero() {
		return until, shardlease.ErrUnproven
	}
	return until, r.err
}

// renew adds a renewal now, and sets the error.
func (r *renewals) renew(err error) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.err = append(r.at, time.Now()), err
	return time.Now()
}

func (r *renewals) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// run runs a Detector of the evidence, with one watch of the cluster.
func run(t *testing.T, c *cluster, r *renewals) (*rewind.Detector, toolscache.ListerWatcherWithContext) {
	t.Helper()
	d := rewind.New()
	d.SetEvidence(r)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, d.Run(ctx)) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	lw := c.through(d)
	require.NoError(t, resumeFrom(t, lw, ""))
	return d, lw
}

// after lets time pass and returns the current time.
func after(d time.Duration) time.Time {
	time.Sleep(d)
	synctest.Wait()
	return time.Now()
}

func TestEvidenceConfirmsTimeBeforeLastRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := &cluster{resourceVersion: "300", event: make(chan watch.Event)}, &renewals{takes: time.Millisecond}
		d, lw := run(t, c, r)
		long := after(time.Second)
		after(time.Second)
		last := r.renew(nil)
		recent := after(time.Second)
		w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(60))})
		require.NoError(t, err)
		go func() { c.event <- watch.Event{Type: watch.Modified, Object: &corev1.Node{}} }()
		<-w.ResultChan() // the watch is alive
		w.Stop()
		c.event = nil
		after(time.Second)
		late := r.renew(nil) // perhaps to another etcd
		after(time.Second)
		require.NoError(t, resumeFrom(t, lw, "300"))
		assert.True(t, d.Unconfirmed(long), "nothing is proven yet")
		resumed := after(time.Nanosecond)
		after(r.takes)
		assert.Equal(t, 1, r.count(), "at once")
		assert.False(t, d.Unconfirmed(long))
		assert.False(t, d.Unconfirmed(last.Add(-1)))
		assert.True(t, d.Unconfirmed(last))
		assert.True(t, d.Unconfirmed(recent))
		assert.True(t, d.Unconfirmed(late))
		assert.False(t, d.Unconfirmed(resumed))
		after(time.Hour)
		assert.Equal(t, 1, r.count())
		assert.True(t, d.Unconfirmed(recent), "nothing proves it later")
	})
}

func TestEvidenceIsRequestedUntilAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := &cluster{resourceVersion: "300"}, &renewals{}
		start := r.renew(nil)
		after(time.Second)
		d, lw := run(t, c, r)
		after(3 * time.Second)
		r.renew(errors.New("the API server does not answer"))
		require.NoError(t, resumeFrom(t, lw, "300"))
		after(10 * time.Second)
		assert.True(t, d.Unconfirmed(start.Add(-1)))
		assert.InDelta(t, 11, r.count(), 1)
		r.renew(nil)
		after(time.Second)
		assert.False(t, d.Unconfirmed(start.Add(-1)))
	})
}

func TestWithoutProofEarlierEventsStayUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := &cluster{resourceVersion: "300"}, &renewals{}
		start := time.Now()
		d, lw := run(t, c, r)
		r.renew(shardlease.ErrUnproven)
		after(3 * time.Second)
		require.NoError(t, resumeFrom(t, lw, "300"))
		r.renew(nil)
		after(time.Second)
		require.NoError(t, resumeFrom(t, lw, "300"))
		resumed := after(time.Hour)
		assert.True(t, d.Unconfirmed(start), "the proof that comes later is of a later time")
		assert.False(t, d.Unconfirmed(resumed))
	})
}

// The evidence arrives after another interruption: both are merged into one period.
func TestInterruptionWhileEvidenceIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := &cluster{resourceVersion: "300"}, &renewals{}
		start := r.renew(nil)
		after(time.Second)
		d, lw := run(t, c, r)
		after(3 * time.Second)
		between := r.renew(errors.New("the API server does not answer"))
		require.NoError(t, resumeFrom(t, lw, "300"))
		after(time.Second)
		c.isDown = true
		require.ErrorIs(t, resumeFrom(t, lw, "300"), errDown)
		r.renew(nil)
		after(2 * time.Second)
		assert.True(t, d.Unconfirmed(start.Add(-1)), "it is interrupted")
		c.isDown = false
		require.NoError(t, resumeFrom(t, lw, "300"))
		after(time.Second)
		assert.False(t, d.Unconfirmed(start.Add(-1)))
		assert.True(t, d.Unconfirmed(between), "it was sent after the first interruption")
	})
}

func TestMemoryForInterruptionsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := &cluster{resourceVersion: "300"}, &renewals{}
		d, lw := run(t, c, r)
		var doubtful, proven []time.Time
		for range 200 {
			after(time.Minute)
			require.NoError(t, resumeFrom(t, lw, "0"))
			proven = append(proven, after(time.Nanosecond))
			r.renew(nil)
			after(10 * time.Second)
			doubtful = append(doubtful, after(0))
			require.NoError(t, resumeFrom(t, lw, "0"))
			after(10 * time.Second)
			require.NoError(t, resumeFrom(t, lw, "300"))
			after(time.Second)
		}
		for _, at := range doubtful {
			assert.True(t, d.Unconfirmed(at))
		}
		assert.False(t, d.Unconfirmed(proven[len(proven)-1].Add(-5*time.Second)))
	})
}
