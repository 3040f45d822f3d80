package simulation

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/schedules"
)

var (
	most       = flag.Int("schedules", 8_000, "how many schedules TestNoScheduleBreaksAPromise explores")
	firstSeed  = flag.Uint64("seed", 0, "the seed of the first schedule, each next one has the next seed; 0: one that changes with the commit")
	narrowMost = flag.Int("narrow", narrowSchedules, "how many schedules of each kind TestNoNarrowScheduleBreaksAPromise explores")
	search     = flag.Bool("search", false, "look for a schedule that finds each mutant")
	kindName   = flag.String("kind", "", "the kind of narrow schedules that TestNoScheduleBreaksAPromise explores instead of all")
	mutantName = flag.String("mutant", "", "the mutant of TestEveryMutantIsFound that TestNoScheduleBreaksAPromise explores instead of the real rules")
)

// mutantSchedules is how many schedules a mutant may survive.
const mutantSchedules = 1_000_000

// nearSeeds is how many schedules are played from the one that is known to find a mutant.
const nearSeeds = 20

// fewCollections lets the garbage of some thousand schedules gather.
const fewCollections = 1000

func TestNoScheduleBreaksAPromise(t *testing.T) {
	m, isKnown := mutants[*mutantName]
	require.True(t, isKnown, "no mutant has the name %q", *mutantName)
	if *kindName != "" {
		m.narrow, isKnown = narrowKinds[*kindName]
		require.True(t, isKnown, "no kind of narrow schedules has the name %q", *kindName)
	}
	first := schedules.Seed(t, *firstSeed)
	t.Logf("%d schedules from seed %d", *most, first)
	if seed, err := explore(first, *most, m); err != nil {
		t.Error(report(seed, m, *kindName, *mutantName))
	}
}

// narrowSchedules is how many schedules of each kind that finds a mutant the real rules must survive.
const narrowSchedules = 1_500

// narrowKinds are the kinds of narrow schedules.
var narrowKinds = map[string]func(*settings){
	"moving": moving, "stalling": stalling, "lagging": lagging, "stuck workers": stuckWorkers, "lost contracts": lostContracts, "replaced": replaced,
	"reborn": reborn, "crashing": crashing, "cut off": cutOff, "behind": behind, "restarting": restarting, "overlap": overlap,
}

func TestNoNarrowScheduleBreaksAPromise(t *testing.T) {
	for name, narrow := range narrowKinds {
		t.Run(name, func(t *testing.T) {
			if seed, err := explore(schedules.Seed(t, *firstSeed), *narrowMost, mutant{narrow: narrow}); err != nil {
				t.Error(report(seed, mutant{narrow: narrow}, name, ""))
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
	text := report(seed, m, "", name)
	lines := strings.Split(text, "\n")
	assert.LessOrEqual(t, len(lines), maxReportLines, text)
	assert.Regexp(t, `^W\d+: `, lines[0])
	assert.Equal(t, schedules.Command("placement/test/simulation", seed, "", name), lines[len(lines)-1])
}

// explore runs schedules side by side until one breaks a promise.
func explore(first uint64, count int, m mutant) (seed uint64, broken error) {
	return lengths.Explore(first, count, fewCollections, func() schedules.Runner { return runner{newSimulation(m)} })
}

// runner lets package schedules run a simulation.
type runner struct{ *simulation }

// Run is run.
func (r runner) Run(choices []byte, traced bool) error { return r.run(choices, traced) }

// Trace returns what the last run has told.
func (r runner) Trace() []string { return r.world.trace }

// End does nothing: a simulation holds nothing.
func (r runner) End() {}

// report shrinks the schedule of a seed that breaks a promise, and tells it.
func report(seed uint64, m mutant, kindName, mutantName string) string {
	return lengths.Report(seed, runner{newSimulation(m)}, schedules.Command("placement/test/simulation", seed, kindName, mutantName))
}
