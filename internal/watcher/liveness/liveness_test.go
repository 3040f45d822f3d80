package liveness_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/watcher/liveness"
)

func TestNewLoopIsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l liveness.Loop
		time.Sleep(time.Hour)
		require.NoError(t, l.Live(nil))
		l.Begin("an event")() // before there are beats
		time.Sleep(time.Hour)
		require.NoError(t, l.Live(nil))
	})
}

func TestLoopWithoutBeatsHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l liveness.Loop
		for range 100 {
			l.Beat()
			time.Sleep(liveness.Period)
			require.NoError(t, l.Live(nil))
		}
		time.Sleep(liveness.Limit)
		require.EqualError(t, l.Live(nil), "nothing has moved for 5m10s")
		l.Beat()
		assert.NoError(t, l.Live(nil), "it goes on")
	})
}

func TestFailingItemsKeepLoopLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l liveness.Loop
		l.Beat()
		for range 100 { // the beats wait behind them
			end := l.Begin("node-1")
			time.Sleep(liveness.Limit)
			require.NoError(t, l.Live(nil))
			end()
		}
	})
}

func TestOneHangingWorkerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l liveness.Loop
		end := l.Begin("node-1")
		for range 40 {
			l.Beat()
			l.Progress("node-1")
			time.Sleep(liveness.Period)
		}
		require.NoError(t, l.Live(nil), "slow, but not stuck")
		for range 40 {
			l.Beat()
			l.Progress("node-2") // which is done already
			time.Sleep(liveness.Period)
		}
		require.EqualError(t, l.Live(nil), "no progress with node-1 for 6m50s")
		end()
		assert.NoError(t, l.Live(nil))
	})
}
