package journal

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCheck: the lines are "event pod epoch".
func TestCheck(t *testing.T) {
	t.Parallel()
	for lines, want := range map[string]string{
		"start a 1, stop a 1, start b 2": "",
		"start a 1, start b 2":           "", // the lock shows overlaps: a may have been killed
		"start a 1, start a 1":           "", // started again after a failure
		"start a 1, overlap b 2":         "while another process did",
		"start a 2, stop a 2, start b 1": "with epoch 1 after a with epoch 2",
		"start a 2, stop a 2, start b 2": "with epoch 2 after a with epoch 2",
	} {
		var text strings.Builder
		for line := range strings.SplitSeq(lines, ", ") {
			f := strings.Fields(line)
			text.WriteString("1 " + f[0] + " q 0 " + f[2] + " 7 " + f[1] + " 3\n")
		}
		all, err := parse(strings.NewReader(text.String()))
		require.NoError(t, err)
		if err = Check(all); want == "" {
			require.NoError(t, err, lines)
		} else {
			require.ErrorContains(t, err, want, lines)
		}
	}
	all, err := parse(strings.NewReader("1 start q 0 5 7 a 3\n2 start q 1 5 8 b 3\n3 stop q 0 5 7 a 3\n"))
	require.NoError(t, err)
	assert.Equal(t, map[int32]string{1: "b"}, Owners(all, "q"))
	assert.Equal(t, Entry{NS: 1, Event: Start, Name: "q", Index: 0, Epoch: 5, PID: 7, Pod: "a", Of: 3}, all[0])
}
