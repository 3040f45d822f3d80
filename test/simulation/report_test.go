package simulation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/schedules"
)

// report shrinks the schedule of a seed that breaks a promise, and returns its trace.
func report(seed uint64, m mutant, kindName, mutantName string) string {
	return lengths.Report(seed, runner{newSimulation(m)}, schedules.Command("test/simulation", seed, kindName, mutantName))
}

// maxReportLines keeps a report readable.
const maxReportLines = 40

func TestReportIsShortAndHasTheCommandThatRepeatsIt(t *testing.T) {
	const name = "save: every incarnation counts"
	m := mutants[name]
	seed, err := explore(0, mutantSchedules, m)
	require.Error(t, err)
	text := report(seed, m, "", name)
	lines := strings.Split(text, "\n")
	assert.LessOrEqual(t, len(lines), maxReportLines, text)
	assert.Regexp(t, `^P\d: `, lines[0])
	assert.Contains(t, text, fmt.Sprintf("seed %d, shrunk to ", seed))
	want := fmt.Sprintf("go test ./test/simulation -run=TestNoScheduleBreaksAPromise -args -schedules=1 -seed=%d -mutant='%s'", seed, name)
	assert.Equal(t, want, lines[len(lines)-1])

	again, err := explore(seed, 1, m) // as that command does
	require.Error(t, err)
	assert.Equal(t, seed, again)
	_, err = explore(seed, 1, mutant{})
	assert.NoError(t, err, "the real rules keep all promises there")
}
