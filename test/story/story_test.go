package story

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAStoryEndsAtTheFirstFailure(t *testing.T) {
	var printed bytes.Buffer
	s := &Stage{Screen: &Screen{w: &printed}}
	good := Step{Title: "good", Promise: "is good", Run: func(context.Context) error { return nil }}
	bad := Step{Title: "bad", Promise: "is bad", Run: func(context.Context) error { return errors.New("broken") }}
	story := &Story{Steps: []Step{good, bad, good}}

	err := s.play(t.Context(), story)
	require.ErrorIs(t, err, errNotAsExpected)
	assert.Equal(t, "\n1/3  good\n  ✓ is good\n\n2/3  bad\n  ✗ broken\n", printed.String())
	s.summary(story, err)
	assert.Contains(t, printed.String(), "  ✗ 2  is bad\n  ✗ 3  is good (not reached)\n")
	assert.NotContains(t, printed.String(), "as expected")
}

func TestAStoryIsCheckedAfterEachStep(t *testing.T) {
	var printed bytes.Buffer
	s := &Stage{Screen: &Screen{w: &printed}}
	good := Step{Run: func(context.Context) error { return nil }}
	require.ErrorIs(t, s.play(t.Context(), &Story{Steps: []Step{good}, Check: func() error { return errors.New("ended") }}), errNotAsExpected)
	assert.Contains(t, printed.String(), "✗ ended")
}

func TestTheCommandsToBeginWithAreLast(t *testing.T) {
	var printed bytes.Buffer
	s := &Stage{Screen: &Screen{w: &printed}}
	s.guide(&Story{Terminal: "  export X=1", Guide: "\n\nTo try more:\n\n  more", Look: "  first\n  second"})
	assert.Equal(t, "\n"+KeepHeading+"\n\n  export X=1\n\nTo try more:\n\n  more\n\nTo end a process:\n\n\n"+LookHeading+"\n\n  first\n  second\n", printed.String())
}

func TestWrap(t *testing.T) {
	long := strings.Repeat("x", 100)
	assert.Equal(t, []string{"aa  bb", long, "c"}, Wrap([]string{"aa", "bb", long, "c"}))
}
