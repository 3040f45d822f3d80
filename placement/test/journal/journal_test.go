package journal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// journalOf returns the entries of lines "event pod epoch uid", one a second.
func journalOf(t *testing.T, lines string) []Entry {
	t.Helper()
	var text strings.Builder
	for i, line := range strings.Split(lines, ", ") {
		f := strings.Fields(line)
		fmt.Fprintf(&text, "%d %s q 0 %s 7 %s 3 %s\n", i+1, f[0], f[2], f[1], f[3])
	}
	all, err := Parse(strings.NewReader(text.String()))
	require.NoError(t, err)
	return all
}

func assertCheck(t *testing.T, want, lines string, restores ...Restore) {
	t.Helper()
	if err := Check(journalOf(t, lines), restores...); want == "" {
		assert.NoError(t, err, lines)
	} else {
		assert.ErrorContains(t, err, want, lines)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for lines, want := range map[string]string{
		"start a 1 u, stop a 1 u, start b 2 u": "",
		"start a 1 u, start b 2 u":             "", // the lock shows overlaps: a may have been killed
		"start a 1 u, start a 1 u":             "", // started again after a failure
		"start a 1 u, overlap b 2 u":           "while another process did",
		"start a 2 u, stop a 2 u, start b 1 u": "with epoch 1 after a of u with epoch 2",
		"start a 2 u, stop a 2 u, start b 2 u": "with epoch 2 after a of u with epoch 2",
		// A resource is created again under its name, as v.
		"start a 1 u, start b 2 v":                           "",
		"start a 1 u, start b 2 v, start a 1 u":              "", // late
		"start a 2 u, start b 3 v, start b 4 v, start a 1 u": "with epoch 1 after a of u with epoch 2",
		"start a 1 u, start b 2 v, start c 3 u":              "of u with epoch 3 after b of v with epoch 2",
		"start a 2 u, start b 2 v":                           "with epoch 2 after a of u with epoch 2",
	} {
		assertCheck(t, want, lines)
	}
	all, err := Parse(strings.NewReader("1 start q 0 5 7 a 3 u\n2 start q 1 5 8 b 3 u\n3 stop q 0 5 7 a 3 u\n"))
	require.NoError(t, err)
	assert.Equal(t, map[int32]string{1: "b"}, Owners(all, "q"))
	assert.Equal(t, Entry{NS: 1, Event: Start, Name: "q", Index: 0, Epoch: 5, PID: 7, Pod: "a", Of: 3, UID: "u"}, all[0])
}

// TestCheckAcrossARestore: it is at the third second, and all have followed it at the fifth. Epochs
// from 20 to 30 are of the lost history.
func TestCheckAcrossARestore(t *testing.T) {
	t.Parallel()
	r := Restore{Begin: 3, Settled: 5, LostFrom: 20, LostTo: 30}
	for lines, want := range map[string]string{
		"start a 10 u, start b 25 u, start a 10 u":                                       "", // not settled
		"start a 10 u, start b 25 u, overlap a 10 u":                                     "",
		"start a 10 u, start b 25 u, stop b 25 u, stop b 25 u, start a 10 u":             "", // it keeps its epoch
		"start a 10 u, start b 25 u, stop b 25 u, stop b 25 u, overlap a 40 u":           "while another process did",
		"start a 10 u, start b 15 u, stop b 15 u, stop b 15 u, start a 10 u":             "with epoch 10 after b of u with epoch 15",
		"start a 10 u, start b 25 u, start b 40 u, stop b 40 u, start a 10 u":            "with epoch 10 after b of u with epoch 40",
		"start a 1 u, start a 2 u, start a 3 u, start a 4 u, start b 25 u, start a 10 u": "with epoch 10 after b of u with epoch 25", // after it
	} {
		assertCheck(t, want, lines, r)
	}
}
