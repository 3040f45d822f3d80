package pages_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
)

func TestSectionEndsAtTheNextHeading(t *testing.T) {
	const content = "# Page\n\n## One\n\na\n\n### Part\n\nb\n\n## Two\n\nc\n"
	assert.Equal(t, "\na\n\n### Part\n\nb\n", pages.Section(content, "One"))
	assert.Equal(t, "\nc\n", pages.Section(content, "Two"))
	assert.Empty(t, pages.Section(content, "Part"))
}

func TestPromisedIsTheNumberOfMinutes(t *testing.T) {
	const content = "The first one takes about\nten minutes, and the next umpteen minutes."
	took, err := pages.Promised(content, `takes about (\w+) minutes`)
	require.NoError(t, err)
	assert.Equal(t, 10*time.Minute, took)
	_, err = pages.Promised(content, `next (\w+) minutes`)
	require.ErrorContains(t, err, `"umpteen"`)
	_, err = pages.Promised(content, `last (\w+) minutes`)
	require.ErrorContains(t, err, "does not state")
}
