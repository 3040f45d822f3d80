package rewind_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/daemon/rewind"
)

func TestMetricCountsWatchesThatEndEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cluster{resourceVersion: "300"}, rewind.New()
		lw := c.through(d)
		restarts := func() float64 { return testutil.ToFloat64(d) }
		require.NoError(t, listFrom(t, lw, "0"))
		for range 3 {
			require.NoError(t, resumeFrom(t, lw, "300"))
			time.Sleep(time.Minute) // its regular duration
		}
		require.NoError(t, resumeFrom(t, lw, "300"))
		assert.Zero(t, restarts())

		time.Sleep(10 * time.Second)
		c.isDown = true
		for range 5 {
			require.ErrorIs(t, resumeFrom(t, lw, "300"), errDown)
			time.Sleep(time.Second)
		}
		c.isDown = false
		require.NoError(t, resumeFrom(t, lw, "300"))
		assert.InDelta(t, 1, restarts(), 0, "one interruption, however many attempts")

		time.Sleep(10 * time.Second)
		require.NoError(t, listFrom(t, lw, "")) // as after 410 Gone
		require.NoError(t, resumeFrom(t, lw, "300"))
		assert.InDelta(t, 2, restarts(), 0)
	})
}
