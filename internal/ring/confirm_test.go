package ring_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/sharding/shardlease"
)

func TestConfirmCoversTimeBeforeLastRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := c.join(t, "a")
		start := time.Now()
		pass(18 * time.Second)
		before := a.count()
		until, err := a.Confirm(t.Context(), time.Now())
		require.NoError(t, err)
		assert.Equal(t, 15*time.Second, until.Sub(start))
		assert.Equal(t, 1, a.count()-before, "one write, at once")

		pass(2 * time.Second)
		until, err = a.Confirm(t.Context(), start.Add(12*time.Second))
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, until.Sub(start), "later renewals prove nothing about what came before them")
		_, err = a.Confirm(t.Context(), start)
		require.ErrorIs(t, err, shardlease.ErrUnproven, "nothing was sent before that")
	})
}

func TestConfirmFailsWhenTheChainOfRenewalsIsBroken(t *testing.T) {
	// rewind restores the cluster's state of six seconds, and one renewal, ago.
	rewind := func(c *cluster) {
		b := c.backUp()
		pass(6 * time.Second)
		c.restore(b)
	}
	for name, tc := range map[string]struct {
		broken func(c *cluster)
		since  time.Duration // until Confirm
	}{
		"by another writer":                         {func(c *cluster) { c.put(c.get("a")) }, 0},
		"by a restore from before the last renewal": {rewind, 0},
		"by a restore, with renewals since":         {rewind, 11 * time.Second},
		"by a restore from before the Lease":        {func(c *cluster) { c.restore(newCluster().backUp()) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				a := c.join(t, "a")
				pass(12 * time.Second)
				tc.broken(c)
				observed := time.Now()
				pass(tc.since)
				_, err := a.Confirm(t.Context(), observed)
				require.ErrorIs(t, err, shardlease.ErrUnproven)
				pass(6 * time.Second)
				until, err := a.Confirm(t.Context(), time.Now())
				require.NoError(t, err, "another chain has begun")
				assert.False(t, until.Before(observed))
			})
		})
	}
}

// Events observed after the last renewal are not proven, although the Lease is.
func TestConfirmExcludesTimeAfterLastRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := c.join(t, "a")
		pass(12 * time.Second)
		b := c.backUp()
		pass(time.Second)
		lost := time.Now() // later events are lost
		pass(time.Second)
		cut := time.Now()
		c.restore(b)
		pass(20 * time.Second) // with renewals
		until, err := a.Confirm(t.Context(), cut)
		require.NoError(t, err)
		assert.True(t, until.Before(lost))
	})
}

func TestLostResponsesDoNotBreakTheChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := c.join(t, "a")
		start := time.Now()
		pass(12 * time.Second)
		a.set(false, true)
		pass(5 * time.Second)
		_, err := a.Confirm(t.Context(), time.Now())
		require.Error(t, err)
		require.NotErrorIs(t, err, shardlease.ErrUnproven, "it may succeed later")
		a.set(false, false)
		until, err := a.Confirm(t.Context(), start.Add(12*time.Second))
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, until.Sub(start))
		pass(time.Minute)
		until, err = a.Confirm(t.Context(), start.Add(12*time.Second))
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, until.Sub(start))
	})
}

func TestConfirmEndsWithItsCallerAndWithTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := c.join(t, "a")
		pass(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := a.Confirm(ctx, time.Now())
		require.ErrorIs(t, err, context.Canceled)
		a.leave()
		_, err = a.Confirm(t.Context(), time.Now())
		require.Error(t, err)
	})
}
