package simulation

import (
	"flag"
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
	schedules  = flag.Int("schedules", 400_000, "how many schedules TestNoScheduleBreaksAPromise explores")
	firstSeed  = flag.Uint64("seed", 0, "the seed of the first schedule, each next one has the next seed; 0: one that changes with the commit")
	mutantName = flag.String("mutant", "", "the mutant of TestEveryMutantIsFound that TestNoScheduleBreaksAPromise explores instead of the real rules")
)

// mutantSchedules is how many schedules a mutant may survive.
const mutantSchedules = 200_000

// fewCollections lets the garbage of some thousand schedules gather: next to nothing of it lives
// on.
const fewCollections = 3000

// seedOf returns the seed that the flag names, or else one that changes with the commit, so that every commit explores other
// schedules; 1 outside a git checkout.
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

// narrowSchedules is how many schedules of each kind that finds a mutant the real rules must
// survive.
const narrowSchedules = 30_000

func TestNoNarrowScheduleBreaksAPromise(t *testing.T) {
	for name, narrow := range map[string]func(*settings){
		"preserved": preserved, "machines": machines, "late machines": lateMachines, "protected only": protectedOnly, "back and forth": backAndForth, "quick succession": quickSuccession,
		"taking turns": takingTurns, "late edits": lateEdits, "standing still": standingStill,
		"late ends": lateEnds, "overtaken": overtaken, "admissions": admissions, "admissions after removals": admissionsAfterRemovals, "trusted admissions": trustedAdmissions, "markers removed": markersRemoved, "silences": silences,
		"unprotected ends": unprotectedEnds, "removals": removals, "short lives": shortLives, "few incarnations": fewIncarnations, "tombstones": tombstones, "removed, then unprotected": removedThenUnprotected,
	} {
		t.Run(name, func(t *testing.T) {
			if seed, err := explore(seedOf(t), narrowSchedules, mutant{narrow: narrow}); err != nil {
				t.Error(report(seed, mutant{narrow: narrow}, ""))
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
			seed, err := explore(0, mutantSchedules, m)
			if assert.Error(t, err, "the simulation cannot tell this mutant from the real thing") {
				t.Logf("found with seed %d: %v", seed, err)
			}
		})
	}
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
			defer s.end()
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
