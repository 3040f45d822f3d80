package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// machine is the clocks of a machine that can be suspended.
type machine struct{ steady, suspended time.Duration }

func (m *machine) right() *right {
	return newRightBy(10*time.Second, func() time.Duration { return m.steady + m.suspended }, func() time.Duration { return m.steady })
}

// TestRightLastsSinceTheRenewalWasSent is R6: not since it was answered.
func TestRightLastsSinceTheRenewalWasSent(t *testing.T) {
	t.Parallel()
	m := &machine{steady: time.Hour}
	r := m.right()
	assert.False(t, r.isLost(), "it has not begun")
	sent := m.steady
	m.steady += 4 * time.Second // until the answer
	assert.False(t, r.renewed(sent))
	m.steady += 6*time.Second - 1
	assert.False(t, r.isLost())
	assert.Equal(t, time.Duration(1), r.left())
	m.steady++
	assert.True(t, r.isLost())
	r.renewed(m.steady)
	assert.True(t, r.isLost(), "it does not come back")
}

// TestRightDoesNotComeBack: a process that sleeps through its end may renew its Lease before it looks.
func TestRightDoesNotComeBack(t *testing.T) {
	t.Parallel()
	m := &machine{}
	r := m.right()
	r.renewed(0)
	m.steady = 11 * time.Second
	r.renewed(m.steady)
	assert.True(t, r.isLost())
}

// TestRightCountsSuspension is R33: a monotonic clock stands still while the machine is suspended.
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

// TestRightCountsSuspensionBeforeTheAnswer: nobody knows whether the renewal was sent before the machine was suspended or after.
func TestRightCountsSuspensionBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	m := &machine{}
	r := m.right()
	r.renewed(m.steady)
	sent := m.steady
	m.suspended += 8 * time.Second
	assert.True(t, r.renewed(sent), "it must be renewed at once")
	assert.Equal(t, 2*time.Second, r.left())
	assert.False(t, r.renewed(m.steady))
	assert.Equal(t, 10*time.Second, r.left())
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
		require.ErrorIs(t, r.await(waiting), context.DeadlineExceeded, "nobody acts before it begins")
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
