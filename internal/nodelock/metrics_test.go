package nodelock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/test/metrics"
)

func TestMetricsMeasureLockWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		l, registry := nodelock.New(c, namespace, "me"), prometheus.NewRegistry()
		require.NoError(t, registry.Register(l))
		require.NoError(t, l.Do(t.Context(), "free", idle))
		require.NoError(t, c.Create(t.Context(), lease(namespace, "dead", time.Now())))
		for range 5 {
			require.ErrorIs(t, l.Do(t.Context(), node, idle), nodelock.ErrHeld)
			time.Sleep(time.Second)
		}
		require.NoError(t, l.Do(t.Context(), node, func(ctx context.Context) error {
			assert.ErrorIs(t, l.Do(ctx, node, idle), nodelock.ErrHeld, "by other work of this process")
			return nil
		}))
		told, err := metrics.Gather(registry)
		require.NoError(t, err)
		assert.Equal(t, metrics.Samples{
			"nodekeeper_lock_contentions_total":  6,
			"nodekeeper_lock_wait_seconds_count": 2,
			"nodekeeper_lock_wait_seconds_sum":   5,
		}, told)
	})
}
