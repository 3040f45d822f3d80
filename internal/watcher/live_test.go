package watcher_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher/liveness"
)

// hang is a call that never returns, not even when its context ends, like a deadlock.
func hang(until chan struct{}) func(context.Context) {
	return func(context.Context) { <-until }
}

func TestWatcherIsLiveWhileAPIServerIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &faults.Outage{}
		w := start(t, &informer{initial: []any{state("a", "7", nil)}}, down)
		live(w.informer, "b", 20)
		for range 24 * 60 {
			time.Sleep(time.Minute)
			require.NoError(t, w.live(nil), "it tries to read the records")
		}
		require.Error(t, w.ready(nil))
		down.End()
		time.Sleep(time.Minute)
		require.NoError(t, w.ready(nil))
		w.stop(t)
	})
}

func TestWatcherIsLiveWhileNothingCanBeRecorded(t *testing.T) {
	for name, fault := range map[string]interface {
		faults.Fault
		End()
	}{
		"the API server is away":    &faults.Outage{Calls: faults.Calls{Verb: faults.Create}},
		"it hardly answers":         &faults.Slow{Calls: faults.Calls{Verb: faults.Create}, Delay: time.Minute},
		"one node cannot be stored": &faults.Conflict{Calls: faults.Calls{Verb: faults.Create, Name: txn.NodeHash("node-1") + ".8"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, &informer{}, fault)
				live(w.informer, "a", 8)
				for range 6 * 60 {
					time.Sleep(time.Minute)
					require.NoError(t, w.live(nil))
				}
				fault.End()
				time.Sleep(10 * time.Minute)
				require.NoError(t, w.live(nil), "and when there is nothing to do any more")
				w.stop(t)
			})
		})
	}
}

func TestWatcherWithHangingWriterIsNotLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		w := start(t, &informer{}, &faults.Race{Calls: faults.Calls{Verb: faults.Create, Times: 1}, First: hang(until)})
		w.OnAdd(state("a", "8", nil), false)
		time.Sleep(liveness.Limit)
		require.NoError(t, w.live(nil))
		time.Sleep(time.Second)
		require.EqualError(t, w.live(nil), "no progress with node-1 for 5m1s")
		close(until)
		synctest.Wait()
		require.NoError(t, w.live(nil))
		w.stop(t)
	})
}

func TestWatcherWithHangingHandlerIsNotLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{})
		for range cap(w.recorder.Events) {
			w.recorder.Events <- "the channel is full"
		}
		n := state("a", "8", nil)
		n.Name = record.RootCAName // which gets an event
		go w.OnAdd(n, false)
		time.Sleep(liveness.Limit + time.Second)
		require.EqualError(t, w.live(nil), "no progress with an event of the informer for 5m1s")
		<-w.recorder.Events
		synctest.Wait()
		require.NoError(t, w.live(nil))
		w.stop(t)
	})
}

func TestWatcherWithStuckQueueIsNotLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{})
		time.Sleep(time.Hour)
		require.NoError(t, w.live(nil))
		w.stop(t)
		time.Sleep(liveness.Limit + liveness.Period)
		require.ErrorContains(t, w.live(nil), "nothing has moved for 5m")
	})
}
