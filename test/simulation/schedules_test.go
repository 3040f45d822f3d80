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
	most       = flag.Int("schedules", 40_000, "how many schedules TestNoScheduleBreaksAPromise explores")
	firstSeed  = flag.Uint64("seed", 0, "the seed of the first schedule, each next one has the next seed; 0: one that changes with the commit")
	narrowMost = flag.Int("narrow", 4_000, "how many schedules of each kind TestNoNarrowScheduleBreaksAPromise explores")
	search     = flag.Bool("search", false, "search for a schedule that detects each mutant")
	kindName   = flag.String("kind", "", "the kind of narrow schedules that TestNoScheduleBreaksAPromise explores instead of all")
	mutantName = flag.String("mutant", "", "the mutant of TestEveryMutantIsFound that TestNoScheduleBreaksAPromise explores instead of the real rules")
)

// mutantSchedules is the number of schedules that a mutant may survive.
const mutantSchedules = 200_000

// fewCollections makes garbage collection rare, since almost no garbage of a few thousand schedules
// survives.
const fewCollections = 3000

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

// narrowKinds are the kinds of narrow schedules. Each exposes a mutant, and the real rules must
// survive it.
var narrowKinds = map[string]func(*settings){
	"copies": copiedNodes, "policies at creation": policiesAtCreation, "preserved": preserved, "machines": machines, "states of machines": states, "late machines": lateMachines, "protected only": protectedOnly, "back and forth": backAndForth, "quick succession": quickSuccession,
	"replaced datastores": replacedDatastores, "protected in replaced datastores": replacedThenUnprotected, "taking turns": takingTurns, "late edits": lateEdits, "standing still": standingStill,
	"late ends": lateEnds, "overtaken": overtaken, "admissions": admissions, "admissions after removals": admissionsAfterRemovals, "trusted admissions": trustedAdmissions, "trusted behind": trustedBehind, "markers removed": markersRemoved, "silences": silences, "lone silences": loneSilences,
	"unnoted ends": unnotedEnds, "unprotected ends": unprotectedEnds, "admissions of unprotected": admissionsOfUnprotected, "removals": removals, "refusals": refusals, "appliers": appliers, "appliers and the webhook": appliersAndWebhook, "short lives": shortLives, "taken names": takenNames, "few incarnations": fewIncarnations, "backups": backups, "edited early": editedEarly, "tombstones": tombstones, "removed, then unprotected": removedThenUnprotected,
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

func TestEveryMutantIsFound(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		m := mutants[name]
		if name == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if m.script != nil {
				broken, err := play(m, m.script)
				assert.Error(t, err, "the script does not tell this mutant from the real thing:\n%s", strings.Join(broken, "\n"))
				told, err := play(mutant{narrow: m.narrow}, m.script)
				assert.NoError(t, err, "the real rules keep all promises there:\n%s", strings.Join(told, "\n"))
				return
			}
			first, count := found.Seeds(name, *search, mutantSchedules)
			seed, err := explore(first, count, m)
			if assert.Error(t, err, "the simulation does not detect this mutant; try -search") {
				t.Logf("found with seed %d: %v", seed, err)
			}
		})
	}
}

// explore runs schedules concurrently until one breaks a promise.
func explore(first uint64, count int, m mutant) (seed uint64, broken error) {
	return lengths.Explore(first, count, fewCollections, func() schedules.Runner { return runner{newSimulation(m)} })
}

// runner adapts a simulation for package schedules.
type runner struct{ *simulation }

// Run calls run.
func (r runner) Run(choices []byte, traced bool) error { return r.run(choices, traced) }

// Trace returns the trace of the last run.
func (r runner) Trace() []string { return r.world.trace }

// End calls end.
func (r runner) End() { r.end() }
