package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// machine simulates the clocks of a machine that can be suspended.
type machine struct{ steady, suspended time.Duration }

func (m *machine) right() *right {
	return newRightBy(10*time.Second, func() time.Duration { return m.steady + m.suspended }, func() time.Duration { return m.steady })
}

// TestRightLastsSinceTheRenewalWasSent covers R6: the right counts from the request, not from the
// response.
func TestRightLastsSinceTheRenewalWasSent(t *testing.T) {
	t.Parallel()
	m := &machine{steady: time.Hour}
	r := m.right()
	assert.False(t, r.isLost(), "it has not begun")
	sent := m.steady
	m.steady += 4 * time.Second // until the response
	assert.False(t, r.renewed(sent))
	m.steady += 6*time.Second - 1
	assert.False(t, r.isLost())
	assert.Equal(t, time.Duration(1), r.remaining())
	m.steady++
	assert.True(t, r.isLost())
	r.renewed(m.steady)
	assert.True(t, r.isLost(), "the right does not return")
}

// A process that sleeps past the end of its right may renew its Lease before it checks.
func TestRightDoesNotReturn(t *testing.T) {
	t.Parallel()
	m := &machine{}
	r := m.right()
	r.renewed(0)
	m.steady = 11 * time.Second
	r.renewed(m.steady)
	assert.True(t, r.isLost())
}

// TestRightCountsSuspension covers R33: a monotonic clock stands still while the machine is
// suspended.
func TestRightCountsSuspension(t *testing.T) {
	t.Parallel()
	m := &machine{}
	r := m.right()
	r.renewed(m.steady)
	m.suspended += 9 * time.Second
	assert.False(t, r.isLost())
	m.suspended += time.Second
	assert.True(t, r.isLost())
}

// It is unknown whether the renewal was sent before or after the suspension.
func TestRightCountsSuspensionBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	m := &machine{}
	r := m.right()
	r.renewed(m.steady)
	sent := m.steady
	m.suspended += 8 * time.Second
	assert.True(t, r.renewed(sent), "the Lease must be renewed at once")
	assert.Equal(t, 2*time.Second, r.remaining())
	assert.False(t, r.renewed(m.steady))
	assert.Equal(t, 10*time.Second, r.remaining())
}

func TestRightEndsContexts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		since := func() time.Duration { return time.Since(began) }
		r := newRightBy(10*time.Second, since, since)
		go r.watch(t.Context())
		waiting, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.await(waiting), context.DeadlineExceeded, "the right has not begun")
		r.renewed(since())
		r.begin()
		require.NoError(t, r.await(t.Context()))
		ctx, cancel := r.bound(t.Context(), ErrFenced)
		defer cancel()
		for range 3 {
			time.Sleep(9 * time.Second)
			synctest.Wait()
			require.NoError(t, ctx.Err())
			r.renewed(since())
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.ErrorIs(t, context.Cause(ctx), ErrFenced)
		assert.ErrorIs(t, r.await(t.Context()), ErrLeaseLost)
	})
}
