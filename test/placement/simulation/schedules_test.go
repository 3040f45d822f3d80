package simulation

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	schedules  = flag.Int("schedules", 8_000, "how many schedules TestNoScheduleBreaksAPromise explores")
	firstSeed  = flag.Uint64("seed", 0, "the seed of the first schedule, each next one has the next seed; 0: one that changes with the commit")
	narrowMost = flag.Int("narrow", narrowSchedules, "how many schedules of each kind TestNoNarrowScheduleBreaksAPromise explores")
	search     = flag.Bool("search", false, "look for a schedule that finds each mutant")
	mutantName = flag.String("mutant", "", "the mutant of TestEveryMutantIsFound that TestNoScheduleBreaksAPromise explores instead of the real rules")
)

// mutantSchedules is how many schedules a mutant may survive.
const mutantSchedules = 1_000_000

// nearSeeds is how many schedules are played from the one that is known to find a mutant.
const nearSeeds = 20

// fewCollections lets the garbage of some thousand schedules gather.
const fewCollections = 1000

// seedOf returns the seed that the flag names, or else one that changes with the commit; 1 outside a git checkout.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	if *firstSeed != 0 {
		return *firstSeed
	}
	commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--short=8", "HEAD").Output()
	if err != nil {
		return 1
	}
	seed, err := strconv.ParseUint(strings.TrimSpace(string(commit)), 16, 64)
	require.NoError(t, err)
	return seed
}

func TestNoScheduleBreaksAPromise(t *testing.T) {
	m, isKnown := mutants[*mutantName]
	require.True(t, isKnown, "no mutant has the name %q", *mutantName)
	first := seedOf(t)
	t.Logf("%d schedules from seed %d", *schedules, first)
	if seed, err := explore(first, *schedules, m); err != nil {
		t.Error(report(seed, m, *mutantName))
	}
}

// narrowSchedules is how many schedules of each kind that finds a mutant the real rules must survive.
const narrowSchedules = 1_500

func TestNoNarrowScheduleBreaksAPromise(t *testing.T) {
	for name, narrow := range map[string]func(*settings){
		"moving": moving, "stalling": stalling, "lagging": lagging, "stuck workers": stuckWorkers, "lost contracts": lostContracts, "replaced": replaced,
		"reborn": reborn, "crashing": crashing, "cut off": cutOff, "behind": behind, "restarting": restarting, "overlap": overlap,
	} {
		t.Run(name, func(t *testing.T) {
			if seed, err := explore(seedOf(t), *narrowMost, mutant{narrow: narrow}); err != nil {
				t.Error(report(seed, mutant{narrow: narrow}, ""))
			}
		})
	}
}

// TestEveryMutantIsFound plays the schedule that is known to find a mutant. After a change of what a seed means, -search
// looks for another one.
func TestEveryMutantIsFound(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		if name == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			_, hasStory := stories[name]
			if _, isImplied := implied[name]; hasStory || isImplied {
				t.Skip("TestEveryStoryFindsItsMutant finds it, or other rules imply its rule")
			}
			m := mutants[name]
			first, count := found[name], nearSeeds
			if *search {
				first, count = 0, mutantSchedules
			}
			seed, err := explore(first, count, m)
			if assert.Error(t, err, "the simulation cannot tell this mutant from the real thing; try -search") {
				t.Logf("found with seed %d: %v", seed, err)
			}
			_, err = explore(seed, 1, mutant{narrow: m.narrow, settles: m.settles})
			assert.NoError(t, err, "the real rules keep all promises there")
		})
	}
}

// TestEveryMutantIsAccountedFor: random choices find a mutant, or a story does, or other rules imply the rule.
func TestEveryMutantIsAccountedFor(t *testing.T) {
	names := slices.Concat(slices.Collect(maps.Keys(found)), slices.Collect(maps.Keys(stories)), slices.Collect(maps.Keys(implied)), []string{""})
	assert.ElementsMatch(t, slices.Collect(maps.Keys(mutants)), names)
}

// maxReportLines is what somebody reads to the end.
const maxReportLines = 60

func TestReportIsShortAndSaysHowToRepeatIt(t *testing.T) {
	const name = "release: without acknowledgement"
	m := mutants[name]
	seed, err := explore(found[name], nearSeeds, m)
	require.Error(t, err)
	text := report(seed, m, name)
	lines := strings.Split(text, "\n")
	assert.LessOrEqual(t, len(lines), maxReportLines, text)
	assert.Regexp(t, `^W\d+: `, lines[0])
	assert.Equal(t, command(seed, name), lines[len(lines)-1])
}

// explore runs schedules side by side until one breaks a promise.
func explore(first uint64, count int, m mutant) (seed uint64, broken error) {
	var (
		next atomic.Uint64
		stop atomic.Bool
		once sync.Once
		wg   sync.WaitGroup
	)
	defer debug.SetGCPercent(debug.SetGCPercent(fewCollections))
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			s := newSimulation(m)
			var bytes []byte
			for !stop.Load() {
				n := next.Add(1) - 1
				if n >= uint64(count) {
					return
				}
				bytes = choicesOf(first+n, bytes)
				if err := s.run(bytes, false); err != nil {
					once.Do(func() { seed, broken = first+n, err })
					stop.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return seed, broken
}

// report shrinks the schedule of a seed that breaks a promise, and tells it.
func report(seed uint64, m mutant, name string) string {
	s := newSimulation(m)
	promise := errors.Unwrap(s.run(choicesOf(seed, nil), false))
	if promise == nil {
		return fmt.Sprintf("seed %d breaks a promise only after other runs: a run leaves something behind", seed)
	}
	small := shrink(choicesOf(seed, nil), func(bytes []byte) bool { return errors.Is(s.run(bytes, false), promise) })
	broken := s.run(small, true)
	return fmt.Sprintf("%v\n%s\nseed %d, shrunk to %d choices; to repeat:\n%s",
		broken, strings.Join(s.world.trace, "\n"), seed, len(small), command(seed, name))
}

// command is what repeats the schedule of a seed.
func command(seed uint64, name string) string {
	args := fmt.Sprintf("-schedules=1 -seed=%d", seed)
	if name != "" {
		args += " -mutant='" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return "go test ./test/placement/simulation -run=TestNoScheduleBreaksAPromise -args " + args
}
