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
	mutantMost = flag.Int("mutantschedules", mutantSchedules, "how many schedules a mutant may survive")
	mutantName = flag.String("mutant", "", "the mutant of TestEveryMutantIsFound that TestNoScheduleBreaksAPromise explores instead of the real rules")
)

// mutantSchedules is how many schedules a mutant may survive.
const mutantSchedules = 1_000_000

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

func TestEveryMutantIsFound(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		if name == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			seed, err := explore(0, *mutantMost, mutants[name])
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
