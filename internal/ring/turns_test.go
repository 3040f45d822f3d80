package ring_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/ring"
)

const (
	step  = time.Second
	limit = 10 * time.Second
)

// placed says of each key who its owner is, and this member's rank.
type placed map[string]struct {
	owner string
	rank  int
}

func (p placed) Place(key string) (owner string, rank int) { return p[key].owner, p[key].rank }

func newTurns() *ring.Turns {
	return ring.NewTurns(placed{
		"mine": {"me", 0}, "next": {"other", 1}, "again": {"other", 1}, "last": {"other", 2}, "theirs": {"third", 1}, "far": {"third", 50},
	}, step, limit)
}

func TestOwnerDoesNotWait(t *testing.T) {
	turns, now := newTurns(), time.Now()
	assert.Zero(t, turns.Wait("mine", "a", now, now))
	assert.Zero(t, (*ring.Turns)(nil).Wait("next", "a", now, now))
}

func TestWaitGrowsWithTheRankUpToTheLimit(t *testing.T) {
	turns, now := newTurns(), time.Now()
	assert.Equal(t, step, turns.Wait("next", "a", now, now))
	assert.Equal(t, 2*step, turns.Wait("last", "a", now, now))
	assert.Equal(t, limit, turns.Wait("far", "a", now, now))
}

func TestWaitEnds(t *testing.T) {
	turns, now := newTurns(), time.Now()
	turns.Wait("next", "a", now, now)
	assert.Equal(t, step/4, turns.Wait("next", "a", now, now.Add(3*step/4)))
	assert.Zero(t, turns.Wait("next", "a", now, now.Add(step)))
	assert.Zero(t, turns.Wait("next", "a", now, now.Add(time.Hour)))
	turns.Forget("next")
	assert.Equal(t, step, turns.Wait("next", "a", now.Add(time.Hour), now.Add(time.Hour)), "the next time it begins anew")
	turns.Forget("next")
	assert.Zero(t, turns.Wait("next", "b", now, now.Add(time.Hour)), "what is known for long has waited")
}

func TestWaitBeginsAnewWhenTheOwnerGetsSomethingDone(t *testing.T) {
	for name, done := range map[string]func(*ring.Turns, time.Time){
		"all of a key":       func(turns *ring.Turns, now time.Time) { turns.Done("again", now) },
		"something of a key": func(turns *ring.Turns, now time.Time) { turns.Wait("again", "b", now, now) },
		"something of the key": func(turns *ring.Turns, now time.Time) {
			turns.Wait("next", "0", now, now)
			turns.Wait("next", "a", now, now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			turns, now := newTurns(), time.Now()
			turns.Wait("next", "a", now, now)
			turns.Wait("again", "a", now, now)
			later := now.Add(3 * step / 4)
			done(turns, later)
			assert.Equal(t, step, turns.Wait("next", "a", now, later))
		})
	}
}

func TestProgressOfOthersIsNoReasonToWait(t *testing.T) {
	for name, key := range map[string]string{"of another owner": "theirs", "where another comes before this member": "last"} {
		t.Run(name, func(t *testing.T) {
			turns, now := newTurns(), time.Now()
			turns.Wait("next", "a", now, now)
			turns.Wait(key, "a", now, now)
			turns.Done(key, now.Add(step))
			assert.Zero(t, turns.Wait("next", "a", now, now.Add(step)))
		})
	}
}

func TestOwnWorkIsNoReasonToWait(t *testing.T) {
	turns, now := newTurns(), time.Now()
	turns.Wait("next", "a", now, now)
	turns.Wait("again", "a", now, now)
	turns.Forget("again")
	assert.Zero(t, turns.Wait("next", "a", now, now.Add(step)))
	turns.Done("never waited for", now.Add(step))
	assert.Zero(t, turns.Wait("next", "a", now, now.Add(step)))
}

func TestWhoHasBegunWaitsNoMoreUntilAllIsDone(t *testing.T) {
	for name, end := range map[string]func(*ring.Turns, time.Time){
		"by itself":        func(turns *ring.Turns, _ time.Time) { turns.Forget("next") },
		"perhaps by other": func(turns *ring.Turns, now time.Time) { turns.Done("next", now) },
	} {
		t.Run(name, func(t *testing.T) {
			turns, now := newTurns(), time.Now()
			turns.Wait("again", "a", now, now)
			turns.Begin("next")
			later := now.Add(step / 2)
			assert.Zero(t, turns.Wait("next", "b", later, later))
			end(turns, later)
			assert.Equal(t, step/2, turns.Wait("again", "a", later, later), "no sign of the owner's life")
			assert.Equal(t, step, turns.Wait("next", "c", later, later))
		})
	}
	(*ring.Turns)(nil).Begin("next")
}

// TestNobodyWaitsForEver: an owner may be busy with all but this.
func TestNobodyWaitsForEver(t *testing.T) {
	turns, now := newTurns(), time.Now()
	end := now.Add(limit)
	for turns.Wait("next", "a", now, now) > 0 && !now.After(end) {
		turns.Wait("again", "a", now, now)
		turns.Done("again", now)
		now = now.Add(step / 2)
	}
	assert.Equal(t, end, now)
}

func TestIsWaitingWhileSomethingIsLeftToOthers(t *testing.T) {
	turns, now := newTurns(), time.Now()
	assert.False(t, turns.IsWaiting())
	turns.Wait("mine", "a", now, now)
	assert.False(t, turns.IsWaiting(), "what is one's own is left to nobody")
	turns.Wait("next", "a", now, now)
	assert.True(t, turns.IsWaiting())
	turns.Begin("next")
	assert.False(t, turns.IsWaiting())
	turns.Wait("again", "a", now, now)
	turns.Done("again", now)
	assert.False(t, turns.IsWaiting())
}

func TestWithoutARingNothingIsLeftToOthers(t *testing.T) {
	turns := ring.NewTurns(nil, step, limit)
	assert.Zero(t, turns.Wait("next", "a", time.Now(), time.Now()))
	assert.False(t, turns.IsWaiting())
	turns.Begin("next")
	turns.Done("next", time.Now())
	turns.Forget("next")
}
