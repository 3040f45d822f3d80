package grace_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/daemon/grace"
)

type key struct{}

func TestContextOutlivesItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		longer, cancel := grace.Context(ctx, time.Second)
		defer cancel()
		assert.Equal(t, "value", longer.Value(key{}))
		time.Sleep(time.Hour)
		require.NoError(t, longer.Err(), "it has no end of its own")
		end()
		time.Sleep(time.Second - time.Nanosecond)
		synctest.Wait()
		require.NoError(t, longer.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, longer.Err(), context.Canceled)
	})
}

func TestContextEndsWhenItIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		longer, cancel := grace.Context(t.Context(), time.Second)
		cancel()
		require.ErrorIs(t, longer.Err(), context.Canceled)
	})
}
