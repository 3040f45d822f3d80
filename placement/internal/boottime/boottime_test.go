package boottime_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/placement/internal/boottime"
)

func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	assert.Equal(t, time.Millisecond, boottime.Wait(5*time.Millisecond, 4*time.Millisecond))
	assert.Equal(t, time.Second, boottime.Wait(time.Hour, 0))
	assert.Zero(t, boottime.Wait(1, 1))
	assert.Zero(t, boottime.Wait(1, math.MaxInt64))
	before := boottime.Now()
	assert.LessOrEqual(t, before, boottime.Now())
}
