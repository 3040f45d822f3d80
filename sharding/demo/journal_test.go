package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func journalOf(lines ...string) *strings.Reader {
	var text strings.Builder
	for _, line := range lines { // "shard event uid ns"
		f := strings.Fields(line)
		text.WriteString(`{"shard":"` + f[0] + `","event":"` + f[1] + `","name":"s","uid":"` + f[2] + `","ns":` + f[3] + "}\n")
	}
	return strings.NewReader(text.String())
}

func TestOverlapsAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		lines  []string
		killed map[string]int64
		want   string
	}{
		"one after the other": {[]string{"a begin u 1", "a end u 2", "a ack u 3", "b begin u 4", "b end u 5"}, nil, ""},
		"at once":             {[]string{"a begin u 1", "b begin u 2", "a end u 3", "b end u 4"}, nil, "by a and b at once"},
		"inside":              {[]string{"a begin u 1", "b begin u 2", "b end u 3", "a end u 4"}, nil, "by a and b at once"},
		"after a long one":    {[]string{"a begin u 1", "a end u 9", "b begin u 8", "b end u 10"}, nil, "by a and b at once"},
		"two objects":         {[]string{"a begin u 1", "b begin v 2", "a end u 3", "b end v 4"}, nil, ""},
		"after a kill":        {[]string{"a begin u 1", "b begin u 6", "b end u 7"}, map[string]int64{"a": 5}, ""},
		"before a kill":       {[]string{"a begin u 1", "b begin u 4", "b end u 7"}, map[string]int64{"a": 5}, "by a and b at once"},
	} {
		all, err := spansOf(journalOf(tc.lines...), tc.killed)
		require.NoError(t, err, name)
		if tc.want == "" {
			require.NoError(t, overlaps(all), name)
		} else {
			require.ErrorContains(t, overlaps(all), tc.want, name)
		}
	}
}

func TestBrokenJournals(t *testing.T) {
	_, err := spansOf(journalOf("a begin u 1", "a begin u 2"), nil)
	require.ErrorContains(t, err, "a says begin")
	_, err = spansOf(journalOf("a end u 1"), nil)
	require.ErrorContains(t, err, "a says end")
	_, err = spansOf(journalOf("a begin u 1", "a ack u 2"), nil)
	require.ErrorContains(t, err, "a says ack")
	_, err = spansOf(journalOf("a begin u 1"), nil)
	require.ErrorContains(t, err, "has not ended")
	_, err = spansOf(strings.NewReader("{"), nil)
	require.ErrorContains(t, err, "reading a line")
}

func TestHanded(t *testing.T) {
	all, err := spansOf(journalOf("a begin u 1", "a end u 2", "b begin u 3", "b end u 4", "a begin v 5", "a end v 6"), nil)
	require.NoError(t, err)
	assert.Equal(t, 1, handed(all))
}
