package watcher_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
)

// drainTimeout is how long a watcher keeps writing after it is stopped.
const drainTimeout = 3 * time.Second

// addMany delivers many more nodes than are written concurrently.
func addMany(w *running) (count int) {
	const many = 60
	for i := range many {
		n := state("a", "8", set{"rack": "r7"})
		n.Name = fmt.Sprint("node-", i)
		w.OnAdd(n, false)
	}
	return many
}

// count returns the number of transactions.
func count(t *testing.T, c client.Reader) int {
	t.Helper()
	var list corev1.ConfigMapList
	require.NoError(t, c.List(t.Context(), &list, client.InNamespace(transactions)))
	return len(list.Items)
}

// outageOfCreates ends after the given time.
func outageOfCreates(end time.Duration) faults.Fault {
	down := &faults.Outage{Calls: faults.Calls{Verb: faults.Create}}
	time.AfterFunc(end, down.End)
	return down
}

func TestStopStoresPendingEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func() faults.Fault
		wait  time.Duration // between the events and the stop
	}{
		"at once":              {func() faults.Fault { return &faults.Log{} }, 0},
		"slow writes":          {func() faults.Fault { return &faults.Slow{Delay: 600 * time.Millisecond} }, 0},
		"slow writes, half":    {func() faults.Fault { return &faults.Slow{Delay: 600 * time.Millisecond} }, time.Second},
		"waiting for a retry":  {func() faults.Fault { return outageOfCreates(11 * time.Second) }, 10 * time.Second},
		"failing at the stop":  {func() faults.Fault { return &faults.Outage{Calls: faults.Calls{Verb: faults.Create, Times: 60 + 30}} }, 0},
		"answers lost at last": {func() faults.Fault { return &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Create, Times: 60}} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, &informer{}, tc.fault())
				want := addMany(w)
				synctest.Wait()
				time.Sleep(tc.wait)
				assert.LessOrEqual(t, w.stop(t), drainTimeout)
				assert.Equal(t, want, count(t, w.client))
			})
		})
	}
}

func TestStopDoesNotWaitForABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const end = 10500 * time.Millisecond // the retries of a long outage are two seconds apart
		w := start(t, &informer{}, outageOfCreates(end))
		want := addMany(w)
		begin := time.Now()
		time.Sleep(end - 100*time.Millisecond)
		w.stop(t)
		assert.Less(t, time.Since(begin), end+200*time.Millisecond)
		assert.Equal(t, want, count(t, w.client))
	})
}

// A rolling update while writes are rejected must not cause a storm of requests.
func TestStopLimitsRejectedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &faults.Outage{Calls: faults.Calls{Verb: faults.Create}}
		w := start(t, &informer{}, down)
		addMany(w)
		time.Sleep(time.Minute)
		before := down.Hits()
		w.stop(t)
		assert.Positive(t, down.Hits()-before)
		assert.LessOrEqual(t, down.Hits()-before, 150, "requests in three seconds, for 60 nodes")
	})
}

func TestStopGivesUpOnHangingAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		fault faults.Fault
		wait  time.Duration
	}{
		"writes hang":       {&faults.Slow{Calls: faults.Calls{Verb: faults.Create}, Delay: time.Hour}, 0},
		"writes are failed": {&faults.Outage{Calls: faults.Calls{Verb: faults.Create}}, 0},
		"long outage":       {&faults.Outage{Calls: faults.Calls{Verb: faults.Create}}, time.Minute},
		"start hangs":       {&faults.Slow{Delay: time.Hour}, 0},
		"start hangs long":  {&faults.Slow{Delay: time.Hour}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, &informer{}, tc.fault)
				addMany(w)
				synctest.Wait()
				time.Sleep(tc.wait)
				took := w.stop(t)
				assert.GreaterOrEqual(t, took, drainTimeout, "it tries as long as it may")
				assert.Less(t, took, drainTimeout+500*time.Millisecond)
				assert.Zero(t, count(t, w.client))
			})
		})
	}
}

func TestStopDuringStartStoresPendingEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &faults.Slow{Calls: faults.Calls{Verb: faults.List}, Delay: time.Hour}
		w := start(t, &informer{}, stuck)
		want := addMany(w)
		synctest.Wait()
		assert.Zero(t, count(t, w.client))
		assert.LessOrEqual(t, w.stop(t), drainTimeout)
		stuck.End()
		assert.Equal(t, want, count(t, w.client))
	})
}
