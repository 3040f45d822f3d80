package assignment

import (
	"errors"
	"flag"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/schedules"
)

var (
	most       = flag.Int("schedules", 30_000, "number of schedules that TestNoScheduleBreaksAPromise explores")
	firstSeed  = flag.Uint64("seed", 0, "seed of the first schedule, incremented for each further one; 0: a seed that depends on the commit")
	search     = flag.Bool("search", false, "search for a schedule that detects each mutant")
	kindName   = flag.String("kind", "", "kind of narrow schedules that TestNoScheduleBreaksAPromise explores instead of all schedules: leaves or \"\"")
	mutantName = flag.String("mutant", "", "mutant of TestEveryMutantIsFound that TestNoScheduleBreaksAPromise explores instead of the real rules")
)

const (
	// mutantSchedules is the number of schedules that a mutant may survive.
	mutantSchedules = 200_000
	// fewCollections makes garbage collections rare.
	fewCollections = 1000
	// here is the directory of this package.
	here = "sharding/internal/assignment"
)

// lengths makes most schedules short.
var lengths = schedules.Lengths{Min: 100, Max: 800, Long: 2500, LongOneIn: 8, Stream: 2} //nolint:gochecknoglobals // a constant

// kinds are kinds of narrow schedules, in which some events are frequent.
var kinds = map[string]func(*settings){"leaves": (*settings).leave} //nolint:gochecknoglobals // a constant

// TestNoScheduleBreaksAPromise covers R38.
func TestNoScheduleBreaksAPromise(t *testing.T) {
	m, ok := mutants[*mutantName]
	require.True(t, ok, "no mutant has the name %q", *mutantName)
	if *kindName != "" {
		m.narrow, ok = kinds[*kindName]
		require.True(t, ok, "no kind has the name %q", *kindName)
	}
	first := schedules.Seed(t, *firstSeed)
	t.Logf("%d schedules from seed %d", *most, first)
	if seed, err := explore(first, *most, m); err != nil {
		t.Error(lengths.Report(seed, newSimulation(m), schedules.Command(here, seed, *kindName, *mutantName)))
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
			m := mutants[name]
			first, count := found.Seeds(name, *search, mutantSchedules)
			seed, err := explore(first, count, m)
			for err != nil && !errors.Is(err, m.breaks) && seed+1 < first+uint64(count) { // it breaks another promise, too
				first = seed + 1
				seed, err = explore(first, count, m)
			}
			if assert.ErrorIs(t, err, m.breaks, "the simulation does not detect this mutant; try -search") {
				t.Logf("found with seed %d: %v", seed, err)
			}
			_, err = explore(seed, 1, mutant{narrow: m.narrow, settles: m.settles})
			assert.NoError(t, err, "the real rules keep all promises in this schedule")
		})
	}
}

// explore runs schedules concurrently until one breaks a promise.
func explore(first uint64, count int, m mutant) (seed uint64, broken error) {
	return lengths.Explore(first, count, fewCollections, func() schedules.Runner { return newSimulation(m) })
}

// found has the seeds of schedules that detect mutants.
var found = schedules.Recorded{ //nolint:gochecknoglobals // a constant
	"children: a view is always recent":                           26,
	"children: a write that has failed never arrives":             7043,
	"children: they are where they were":                          65,
	"children: where they are is forgotten":                       1,
	"death: after a second":                                       571,
	"force: without a fence":                                      178,
	"premise: a shard that is not in the table is dead":           171,
	"premise: it holds for ever":                                  670,
	"resync: never":                                               0,
	"shard: acknowledges any version":                             487,
	"shard: acknowledges while it acts":                           1970,
	"shard: acts at once when it returns":                         3328,
	"shard: acts on the version that it has released":             24,
	"shard: acts past its Lease":                                  28991,
	"shard: trusts what its cache has from before it had a Lease": 4478,
	"write: without a test of labels":                             16888,
}
