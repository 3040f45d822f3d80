package story_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/story"
)

func TestPlayEndsAtTheFirstFailure(t *testing.T) {
	var printed bytes.Buffer
	good := story.Step{Title: "good", Promise: "is good", Run: func(context.Context) error { return nil }}
	bad := story.Step{Title: "bad", Promise: "is bad", Run: func(context.Context) error { return errors.New("broken") }}

	results := story.Play(t.Context(), time.Minute, story.PlainScreen(&printed), []story.Step{good, bad, good}, func() error { return nil })

	require.NoError(t, results[0].Err)
	require.ErrorContains(t, results[1].Err, "broken")
	require.ErrorIs(t, results[2].Err, story.ErrNotReached)
	require.ErrorIs(t, story.Failure(results), story.ErrNotAsExpected)
	require.NoError(t, story.Failure(results[:1]))
	assert.Equal(t, "\n1/3  good\n  ✓ is good\n\n2/3  bad\n  ✗ broken\n", printed.String())
}

func TestPlayChecksAfterEachStep(t *testing.T) {
	good := story.Step{Title: "good", Promise: "is good", Run: func(context.Context) error { return nil }}
	results := story.Play(t.Context(), time.Minute, story.PlainScreen(&bytes.Buffer{}), []story.Step{good}, func() error { return errors.New("ended") })
	require.ErrorContains(t, results[0].Err, "ended")
}

func TestWrap(t *testing.T) {
	assert.Equal(t, []string{"aa  bb", "long-word", "c"}, story.Wrap([]string{"aa", "bb", "long-word", "c"}, 6))
}

func TestScreenPrintsTheSameTextTwice(t *testing.T) {
	var first, second bytes.Buffer
	out := story.PlainScreen(&first)
	out.AlsoTo(&second)
	out.Heading("title")
	out.Result(true, "\x1b[32mgreen\x1b[0m")
	assert.Equal(t, "\ntitle\n  ✓ \x1b[32mgreen\x1b[0m\n", first.String())
	assert.Equal(t, "\ntitle\n  ✓ green\n", second.String())
}
