package ui_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/plugin/ui"
)

// read reads everything after a position into the state of a reader, and returns the new position.
func read(t *testing.T, j *ui.Journal, knows map[string]string, at ui.Position) ui.Position {
	t.Helper()
	for {
		changes, next, more, expired := j.After(at, 3)
		require.False(t, expired)
		assert.LessOrEqual(t, len(changes), 3)
		for _, ch := range changes {
			if ch.Value == nil {
				delete(knows, ch.Kind+"/"+ch.Key)
			} else {
				knows[ch.Kind+"/"+ch.Key] = string(ch.Value)
			}
		}
		at = next
		if !more {
			return at
		}
	}
}

func TestReaderKnowsTheLastStateOfEachEntry(t *testing.T) {
	t.Parallel()
	j, knows := ui.NewJournal(), map[string]string{}
	for i := range 10 {
		require.NoError(t, j.Set("node", strconv.Itoa(i), i))
	}
	j.Remove("node", "3")
	at := read(t, j, knows, ui.Position{})
	assert.Len(t, knows, 9)
	assert.NotContains(t, knows, "node/3")

	for i := range 100 {
		require.NoError(t, j.Set("node", "5", i))
	}
	j.Remove("node", "6")
	j.Remove("node", "7")
	require.NoError(t, j.Set("node", "7", "back"))
	changes, _, more, _ := j.After(at, 1000)
	assert.Len(t, changes, 3, "states in between are left out")
	assert.False(t, more)
	read(t, j, knows, at)
	assert.Equal(t, "99", knows["node/5"])
	assert.NotContains(t, knows, "node/6")
	assert.JSONEq(t, `"back"`, knows["node/7"])
}

func TestSameStateIsNoChange(t *testing.T) {
	t.Parallel()
	j := ui.NewJournal()
	require.NoError(t, j.Set("node", "a", 1))
	_, at, _, _ := j.After(ui.Position{}, 10)
	require.NoError(t, j.Set("node", "a", 1))
	j.Remove("node", "b")
	changes, next, _, _ := j.After(at, 10)
	assert.Empty(t, changes)
	assert.Equal(t, at, next)
}

// TestJournalForgetsWhatIsGone: it does not grow with entries that come and go, and a reader that
// is too far behind restarts.
func TestJournalForgetsWhatIsGone(t *testing.T) {
	t.Parallel()
	const many = 30_000
	j := ui.NewJournal()
	require.NoError(t, j.Set("node", "stays", 1))
	require.NoError(t, j.Set("transaction", "first", 1))
	_, at, _, _ := j.After(ui.Position{}, 10)
	j.Remove("transaction", "first")
	for i := range many {
		require.NoError(t, j.Set("transaction", strconv.Itoa(i), 1))
		j.Remove("transaction", strconv.Itoa(i))
	}
	_, _, _, expired := j.After(at, 10)
	assert.True(t, expired, "the removal of what it knows is forgotten")
	changes, next, more, expired := j.After(ui.Position{}, many)
	assert.Len(t, changes, 1, "a new client needs no removed entries")
	assert.False(t, more)
	assert.False(t, expired)
	require.NoError(t, j.Set("node", "stays", 2))
	changes, _, _, expired = j.After(next, many)
	assert.Len(t, changes, 1)
	assert.False(t, expired)
}

func TestWaitEndsWithAChangeOrTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := ui.NewJournal()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		woken := make(chan error, 2)
		go func() { woken <- j.Wait(ctx, ui.Position{}) }()
		synctest.Wait()
		assert.Empty(t, woken)
		require.NoError(t, j.Set("node", "a", 1))
		assert.NoError(t, <-woken)
		_, at, _, _ := j.After(ui.Position{}, 10)
		go func() { woken <- j.Wait(ctx, at) }()
		assert.ErrorIs(t, <-woken, context.DeadlineExceeded)
	})
}

func BenchmarkJournalSet(b *testing.B) {
	j := ui.NewJournal()
	keys := make([]string, 5000)
	for i := range keys {
		keys[i] = fmt.Sprintf("node-%d", i)
	}
	for i := 0; b.Loop(); i++ {
		_ = j.Set("node", keys[i%len(keys)], i)
	}
}

// TestNewReaderNeedsNothingThatWasForgotten: a reader that begins after removals were dropped reads
// old entries in parts, without a restart after each part.
func TestNewReaderNeedsNothingThatWasForgotten(t *testing.T) {
	t.Parallel()
	j := ui.NewJournal()
	for i := range 10 {
		require.NoError(t, j.Set("node", strconv.Itoa(i), i))
	}
	for i := range 20_000 {
		require.NoError(t, j.Set("transaction", strconv.Itoa(i), 1))
		j.Remove("transaction", strconv.Itoa(i))
	}
	knows := map[string]string{}
	read(t, j, knows, ui.Position{})
	assert.Len(t, knows, 10)
}
