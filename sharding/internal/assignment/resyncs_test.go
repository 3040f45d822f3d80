package assignment

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPassesRepeatUntilNothingIsLeft is R24: a pass that has found something is followed by another one, with backoff, and a death needs none.
func TestPassesRepeatUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	const longest = time.Minute
	now := time.Now()
	quiet, busy := state{isSynced: true}, state{isSynced: true, moving: 1}
	p := newPasses()
	assert.Equal(t, forever, p.next(now, longest), "there is no view")
	first := viewOf(nil, []string{"a", "b"})
	first.ring.Status.Table.Generation = 1
	p.see(nil, first, false)
	assert.Zero(t, p.next(now, longest))

	p.end(p.begin(), 0, errors.New("failed"), now)
	assert.Equal(t, retryPeriod, p.next(now, longest), "it is tried again")
	p.end(p.begin(), 0, nil, now)
	p.learn(quiet, p.now(), now)
	_, isBalanced := p.balanced(quiet)
	assert.False(t, isBalanced, "what was written meanwhile, by a former view, may be elsewhere")
	assert.Equal(t, 2*verifyAfter, p.next(now, longest), "the second round in a row")
	p.end(p.begin(), 5, nil, now)
	p.learn(busy, p.now(), now)
	p.work()
	assert.Equal(t, forever, p.next(now, longest), "while objects move")
	_, isBalanced = p.balanced(busy)
	assert.False(t, isBalanced)
	p.learn(quiet, p.now(), now)
	assert.Equal(t, 4*verifyAfter, p.next(now, longest), "the third round")
	before := p.now()
	v := p.begin()
	_, isBalanced = p.balanced(quiet)
	assert.False(t, isBalanced, "while it reads")
	p.end(v, 1, nil, now)
	p.learn(quiet, before, now)
	_, isBalanced = p.balanced(quiet)
	assert.False(t, isBalanced, "that was found out before the pass noted something")
	p.learn(quiet, p.now(), now) // what was noted was right where it was
	generation, isBalanced := p.balanced(quiet)
	assert.True(t, isBalanced)
	assert.EqualValues(t, 1, generation)
	assert.Equal(t, forever, p.next(now, longest))

	second := viewOf(first, []string{"a"})
	second.ring.Status.Table.Generation = 2
	p.see(first, second, false)
	assert.Equal(t, forever, p.next(now, longest), "a death needs no pass")
	generation, isBalanced = p.balanced(quiet)
	assert.True(t, isBalanced)
	assert.EqualValues(t, 2, generation)

	third := viewOf(second, []string{"a", "c"})
	third.ring.Status.Table.Generation = 3
	p.see(second, third, false)
	generation, isBalanced = p.balanced(quiet)
	assert.False(t, isBalanced)
	assert.Zero(t, generation)
	assert.Zero(t, p.next(now, longest))
	p.end(p.begin(), 0, nil, now)
	p.see(third, third, true)
	assert.Zero(t, p.next(now, longest), "another resource is served")
}

// TestNewLeaderTrustsTheStatus is R24: it reads all objects only if nobody has since the table changed.
func TestNewLeaderTrustsTheStatus(t *testing.T) {
	t.Parallel()
	v := viewOf(nil, []string{"a"})
	v.ring.Status.Table.Generation, v.ring.Status.BalancedGeneration = 4, 4
	v.ring.Status.Conditions = []metav1.Condition{{Type: conditionBalancedType, Status: metav1.ConditionTrue}}
	p := newPasses()
	p.see(nil, v, false)
	assert.Equal(t, forever, p.next(time.Now(), time.Minute))
	generation, isBalanced := p.balanced(state{isSynced: true})
	assert.True(t, isBalanced)
	assert.EqualValues(t, 4, generation)

	v.ring.Generation++ // the condition is about the ring before that
	p = newPasses()
	p.see(nil, v, false)
	assert.Zero(t, p.next(time.Now(), time.Minute))
}
