package simulation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// report shrinks the schedule of a seed that breaks a promise, and tells it.
func report(seed uint64, m mutant, mutantName string) string {
	s := newSimulation(m)
	defer s.end()
	promise := errors.Unwrap(s.run(choicesOf(seed, nil), false))
	if promise == nil {
		return fmt.Sprintf("seed %d breaks a promise only after other runs: a run leaves something behind", seed)
	}
	small := shrink(choicesOf(seed, nil), func(bytes []byte) bool { return errors.Is(s.run(bytes, false), promise) })
	broken := s.run(small, true)
	return fmt.Sprintf("%v\n%s\nseed %d, shrunk to %d choices; to repeat:\n%s",
		broken, strings.Join(s.world.trace, "\n"), seed, len(small), command(seed, mutantName))
}

// command is what repeats the schedule of a seed.
func command(seed uint64, mutantName string) string {
	args := fmt.Sprintf("-schedules=1 -seed=%d", seed)
	if mutantName != "" {
		args += " -mutant='" + strings.ReplaceAll(mutantName, "'", `'\''`) + "'"
	}
	return "go test ./test/simulation -run=TestNoScheduleBreaksAPromise -args " + args
}

// maxReportLines is what somebody reads to the end.
const maxReportLines = 40

func TestReportIsShortAndSaysHowToRepeatIt(t *testing.T) {
	const name = "save: every incarnation counts"
	m := mutants[name]
	seed, err := explore(0, mutantSchedules, m)
	require.Error(t, err)
	text := report(seed, m, name)
	lines := strings.Split(text, "\n")
	assert.LessOrEqual(t, len(lines), maxReportLines, text)
	assert.Regexp(t, `^P\d: `, lines[0])
	assert.Contains(t, text, fmt.Sprintf("seed %d, shrunk to ", seed))
	want := fmt.Sprintf("go test ./test/simulation -run=TestNoScheduleBreaksAPromise -args -schedules=1 -seed=%d -mutant='%s'", seed, name)
	assert.Equal(t, want, lines[len(lines)-1])

	again, err := explore(seed, 1, m) // what that command does
	require.Error(t, err)
	assert.Equal(t, seed, again)
	_, err = explore(seed, 1, mutant{})
	assert.NoError(t, err, "the real rules keep all promises there")
}
