package assignment

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestResyncsRepeatUntilNothingIsLeft covers R24: a resync that has found something is followed by
// another one, with backoff. A death requires none.
func TestResyncsRepeatUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	const longest = time.Minute
	now := time.Now()
	quiet, busy := state{synced: true}, state{synced: true, moving: 1}
	p := newResyncs()
	p.jitter = 0
	assert.Equal(t, forever, p.next(now, longest), "there is no view")
	first := viewOf(nil, []string{"a", "b"})
	first.ring.Status.Table.Generation = 1
	p.setView(nil, first, false)
	assert.Zero(t, p.next(now, longest))

	p.end(p.begin(now), 0, errors.New("failed"), now)
	assert.Equal(t, retryPeriod, p.next(now, longest), "it is retried")
	p.end(p.begin(now), 0, nil, now)
	p.observe(quiet, p.currentEpoch(), now)
	_, isBalanced := p.balanced(quiet)
	assert.False(t, isBalanced, "objects that a former view wrote meanwhile may be misplaced")
	assert.Equal(t, 2*verifyAfter, p.next(now, longest), "the second round in a row")
	p.end(p.begin(now), 5, nil, now)
	p.observe(busy, p.currentEpoch(), now)
	p.markMoved()
	assert.Positive(t, p.next(now, longest), "objects are moving")
	_, isBalanced = p.balanced(busy)
	assert.False(t, isBalanced)
	p.observe(quiet, p.currentEpoch(), now)
	assert.Equal(t, 4*verifyAfter, p.next(now, longest), "the third round")
	before := p.currentEpoch()
	v := p.begin(now)
	_, isBalanced = p.balanced(quiet)
	assert.False(t, isBalanced, "a resync is running")
	p.end(v, 1, nil, now)
	p.observe(quiet, before, now)
	_, isBalanced = p.balanced(quiet)
	assert.False(t, isBalanced, "the state is older than the resync")
	p.observe(quiet, p.currentEpoch(), now) // all objects found were in place after all
	generation, isBalanced := p.balanced(quiet)
	assert.True(t, isBalanced)
	assert.EqualValues(t, 1, generation)
	assert.GreaterOrEqual(t, p.next(now, longest), longest)

	second := viewOf(first, []string{"a"})
	second.ring.Status.Table.Generation = 2
	p.setView(first, second, false)
	assert.GreaterOrEqual(t, p.next(now, longest), longest, "a death requires no resync")
	generation, isBalanced = p.balanced(quiet)
	assert.True(t, isBalanced)
	assert.EqualValues(t, 2, generation)

	third := viewOf(second, []string{"a", "c"})
	third.ring.Status.Table.Generation = 3
	p.setView(second, third, false)
	generation, isBalanced = p.balanced(quiet)
	assert.False(t, isBalanced)
	assert.Zero(t, generation)
	assert.Zero(t, p.next(now, longest))
	p.end(p.begin(now), 0, nil, now)
	p.setView(third, third, true)
	assert.Zero(t, p.next(now, longest), "another resource is served")
}

// TestNewLeaderTrustsTheStatus covers R24: a new leader reads all objects only if no resync has
// completed since the table changed.
func TestNewLeaderTrustsTheStatus(t *testing.T) {
	t.Parallel()
	v := viewOf(nil, []string{"a"})
	v.ring.Status.Table.Generation, v.ring.Status.BalancedGeneration = 4, 4
	v.ring.Status.Conditions = []metav1.Condition{{Type: conditionBalancedType, Status: metav1.ConditionTrue}}
	p := newResyncs()
	p.setView(nil, v, false)
	assert.GreaterOrEqual(t, p.next(time.Now(), time.Minute), time.Minute)
	generation, isBalanced := p.balanced(state{synced: true})
	assert.True(t, isBalanced)
	assert.EqualValues(t, 4, generation)

	v.ring.Generation++ // the condition refers to the previous generation
	p = newResyncs()
	p.setView(nil, v, false)
	assert.Zero(t, p.next(time.Now(), time.Minute))
}

// TestRingAtRestIsReadFromTimeToTime covers R24: the interval grows with the duration of a resync.
// A resync that finds nothing does not change what is reported.
func TestRingAtRestIsReadFromTimeToTime(t *testing.T) {
	t.Parallel()
	const period = time.Minute
	start := time.Now()
	quiet := state{synced: true}
	v := viewOf(nil, []string{"a", "b"})
	v.ring.Status.Table.Generation, v.ring.Status.BalancedGeneration = 4, 4
	v.ring.Status.Conditions = []metav1.Condition{{Type: conditionBalancedType, Status: metav1.ConditionTrue}}
	p := newResyncs()
	isBalanced := func() bool {
		p.observe(quiet, p.currentEpoch(), start)
		_, is := p.balanced(quiet)
		return is
	}
	p.setView(nil, v, false)
	first := p.next(start, period)
	assert.InDelta(t, period, first, maxJitter*float64(period))
	assert.Zero(t, p.next(start.Add(first), period))

	began := start.Add(first)
	v = p.begin(began)
	assert.True(t, isBalanced(), "a resync is running")
	ended := began.Add(30 * time.Second)
	p.end(v, 0, nil, ended)
	assert.True(t, isBalanced())
	assert.GreaterOrEqual(t, p.next(ended, period), 10*time.Minute, "it takes a small share of the time")

	v = p.begin(ended)
	p.markMoved()
	p.end(v, 1, nil, ended)
	_, is := p.balanced(quiet)
	assert.False(t, is, "another resync verifies the move")
	p.observe(quiet, p.currentEpoch(), ended)
	assert.Equal(t, verifyAfter, p.next(ended, period))
	p.end(p.begin(ended), 0, nil, ended)
	assert.True(t, isBalanced())
}
