package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestJudge: the lines are "shard event uid ns".
func TestJudge(t *testing.T) {
	killed := map[string]int64{"dead": 5}
	for lines, want := range map[string]string{
		"a begin u 1, a end u 2, a ack u 3, b begin u 4, b end u 5":   "",
		"a begin u 1, b begin u 2, a end u 3, b end u 4":              "by a and b at once",
		"a begin u 1, b begin v 2, a end u 3, b end v 4":              "",
		"dead begin u 1, b begin u 6, b end u 7":                      "",
		"dead begin u 1, b begin u 4, b end u 7":                      "by dead and b at once",
		"b begin u 4, a begin u 1, b end u 5, a end u 2":              "", // not in the order of time
		"a begin u 1, a begin u 2":                                    "by a and a at once",
		"a end u 1":                                                   "a wrote end",
		"a begin u 1, a ack u 2":                                      "a wrote ack",
		"a begin u 1, a end u 2, b begin u 3, b end u 4, a begin v 5": "",
	} {
		_, err := assess(journalOf(lines), killed)
		if want == "" {
			require.NoError(t, err, lines)
		} else {
			require.ErrorContains(t, err, want, lines)
		}
	}
	got, err := assess(journalOf("a begin u 1, a end u 2, b begin u 3, b end u 4, a begin v 5, a end v 6"), nil)
	require.NoError(t, err)
	assert.Equal(t, tally{reconciles: 3, objects: 2, handed: 1}, got)
	_, err = assess(strings.NewReader("{"), nil)
	require.ErrorContains(t, err, "reading a line")
}

func journalOf(lines string) *strings.Reader {
	var text strings.Builder
	for line := range strings.SplitSeq(lines, ", ") {
		f := strings.Fields(line)
		fmt.Fprintf(&text, `{"shard":%q,"event":%q,"name":"s","uid":%q,"ns":%s}`+"\n", f[0], f[1], f[2], f[3])
	}
	return strings.NewReader(text.String())
}
