package watcher_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/test/metrics"
)

func TestMetricsCountRecordedAndUnrecordedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &faults.Outage{Calls: faults.Calls{Verb: faults.Create}}
		w := start(t, &informer{}, down)
		exposed := func() metrics.Samples {
			all, err := metrics.Gather(w.registry)
			require.NoError(t, err)
			return all
		}
		assert.Equal(t, metrics.Samples{
			`nodekeeper_transactions_recorded_total{type="added"}`:   0,
			`nodekeeper_transactions_recorded_total{type="updated"}`: 0,
			`nodekeeper_transactions_recorded_total{type="deleted"}`: 0,
			"nodekeeper_transactions_too_large_total":                0,
			"nodekeeper_unrecorded_events":                           0,
			"nodekeeper_oldest_unrecorded_event_age_seconds":         0,
		}, exposed())

		live(w.informer, "a", 8)
		time.Sleep(time.Minute)
		assert.InDelta(t, 5, exposed()["nodekeeper_unrecorded_events"], 0)
		assert.InDelta(t, 60, exposed()["nodekeeper_oldest_unrecorded_event_age_seconds"], 0)
		assert.Zero(t, exposed()[`nodekeeper_transactions_recorded_total{type="added"}`])

		down.End()
		time.Sleep(time.Minute)
		assert.Equal(t, metrics.Samples{
			`nodekeeper_transactions_recorded_total{type="added"}`:   1,
			`nodekeeper_transactions_recorded_total{type="updated"}`: 3,
			`nodekeeper_transactions_recorded_total{type="deleted"}`: 1,
			"nodekeeper_transactions_too_large_total":                0,
			"nodekeeper_unrecorded_events":                           0,
			"nodekeeper_oldest_unrecorded_event_age_seconds":         0,
		}, exposed())
		w.stop(t)
	})
}
