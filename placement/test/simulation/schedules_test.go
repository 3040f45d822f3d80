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
	most       = flag.Int("schedules", 8_000, "number of schedules that TestNoScheduleBreaksAPromise explores")
	firstSeed  = flag.Uint64("seed", 0, "seed of the first schedule, incremented for each further one; 0: a seed that depends on the commit")
	narrowMost = flag.Int("narrow", narrowSchedules, "number of schedules of each kind that TestNoNarrowScheduleBreaksAPromise explores")
	search     = flag.Bool("search", false, "search for a schedule that detects each mutant")
	kindName   = flag.String("kind", "", "kind of narrow schedules that TestNoScheduleBreaksAPromise explores instead of all schedules")
	mutantName = flag.String("mutant", "", "mutant of TestEveryMutantIsFound that TestNoScheduleBreaksAPromise explores instead of the real rules")
)

// mutantSchedules is the number of schedules that a mutant may survive.
const mutantSchedules = 1_000_000

// fewCollections makes garbage collections rare, about one in some thousand schedules.
const fewCollections = 1000

func TestNoScheduleBreaksAPromise(t *testing.T) {
	m, ok := mutants[*mutantName]
	require.True(t, ok, "no mutant has the name %q", *mutantName)
	if *kindName != "" {
		m.narrow, ok = narrowKinds[*kindName]
		require.True(t, ok, "no kind of narrow schedules has the name %q", *kindName)
	}
	first := schedules.Seed(t, *firstSeed)
	t.Logf("%d schedules from seed %d", *most, first)
	if seed, err := explore(first, *most, m); err != nil {
		t.Error(report(seed, m, *kindName, *mutantName))
	}
}

// narrowSchedules is the number of schedules of each narrow kind that the real rules must survive.
const narrowSchedules = 1_500

// narrowKinds are the kinds of narrow schedules.
var narrowKinds = map[string]func(*settings){
	"moving": moving, "stalling": stalling, "lagging": lagging, "stuck workers": stuckWorkers, "lost contracts": lostContracts, "replaced": replaced,
	"reborn": reborn, "crashing": crashing, "cut off": cutOff, "behind": behind, "restarting": restarting, "overlap": overlap,
	"returning": returning, "restoring": restoring, "reviving": reviving, "adopting": adopting, "keeping": keeping, "rebalancing": rebalancing,
	"rolling": rolling, "scaling": scaling, "collecting": collecting, "orphaning": orphaning, "cleaning": cleaning,
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

// Each mutant is detected by the schedule of its recorded seed. If the meaning of seeds changes,
// -search finds a new seed.
func TestEveryMutantIsFound(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		if name == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			_, hasStory := stories[name]
			if _, isImplied := implied[name]; hasStory || isImplied {
				t.Skip("TestEveryStoryFindsItsMutant detects it, or other rules imply its rule")
			}
			m := mutants[name]
			first, count := found.Seeds(name, *search, mutantSchedules)
			seed, err := explore(first, count, m)
			if assert.Error(t, err, "the simulation does not detect this mutant; try -search") {
				t.Logf("found with seed %d: %v", seed, err)
			}
			_, err = explore(seed, 1, mutant{narrow: m.narrow, settles: m.settles})
			assert.NoError(t, err, "the real rules keep all promises in this schedule")
		})
	}
}

// Each mutant is detected by random choices or by a story, or its rule is implied by other rules.
func TestEveryMutantIsAccountedFor(t *testing.T) {
	names := slices.Concat(slices.Collect(maps.Keys(found)), slices.Collect(maps.Keys(stories)), slices.Collect(maps.Keys(implied)), []string{""})
	assert.ElementsMatch(t, slices.Collect(maps.Keys(mutants)), names)
}

// maxReportLines bounds the length of a readable report.
const maxReportLines = 60

func TestReportIsShortAndHasTheCommandThatRepeatsIt(t *testing.T) {
	const name = "release: without acknowledgement"
	m := mutants[name]
	first, count := found.Seeds(name, false, mutantSchedules)
	seed, err := explore(first, count, m)
	require.Error(t, err)
	text := report(seed, m, "", name)
	lines := strings.Split(text, "\n")
	assert.LessOrEqual(t, len(lines), maxReportLines, text)
	assert.Regexp(t, `^W\d+: `, lines[0])
	assert.Equal(t, schedules.Command("placement/test/simulation", seed, "", name), lines[len(lines)-1])
}

// explore runs schedules concurrently until one breaks a promise.
func explore(first uint64, count int, m mutant) (seed uint64, broken error) {
	return lengths.Explore(first, count, fewCollections, func() schedules.Runner { return runner{newSimulation(m)} })
}

// runner adapts a simulation to package schedules.
type runner struct{ *simulation }

// Run runs the choices.
func (r runner) Run(choices []byte, traced bool) error { return r.run(choices, traced) }

// Trace returns the trace of the last run.
func (r runner) Trace() []string { return r.world.trace }

// End does nothing: a simulation holds no resources.
func (r runner) End() {}

// report shrinks the schedule of a seed that breaks a promise, and describes it.
func report(seed uint64, m mutant, kindName, mutantName string) string {
	return lengths.Report(seed, runner{newSimulation(m)}, schedules.Command("placement/test/simulation", seed, kindName, mutantName))
}
