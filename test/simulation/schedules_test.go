package simulation

import (
	"encoding/hex"
	"flag"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	schedules  = flag.Int("schedules", 1_000_000, "how many schedules TestNoScheduleBreaksAPromise explores")
	firstSeed  = flag.Uint64("seed", 0, "the seed of the first schedule; each next one has the next seed")
	mutantName = flag.String("mutant", "", "the mutant of TestEveryMutantIsFound that TestNoScheduleBreaksAPromise explores instead of the real rules")
)

// mutantSchedules is how many schedules a mutant may survive.
const mutantSchedules = 200_000

func TestNoScheduleBreaksAPromise(t *testing.T) {
	m, isKnown := mutants[*mutantName]
	require.True(t, isKnown, "no mutant has the name %q", *mutantName)
	t.Logf("%d schedules from seed %d", *schedules, *firstSeed)
	if seed, err := explore(*firstSeed, *schedules, m); err != nil {
		t.Error(report(seed, m, *mutantName))
	}
}

func TestEveryMutantIsFound(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		m := mutants[name]
		if name == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if m.known != "" {
				assert.Error(t, playKnown(t, m), "the known schedule finds this mutant no more: look for another one")
				return
			}
			seed, err := explore(0, mutantSchedules, m)
			if assert.Error(t, err, "the simulation cannot tell this mutant from the real thing") {
				t.Logf("found with seed %d: %v", seed, err)
			}
		})
	}
}

// playKnown runs the schedule that is known to find a mutant, which is to break no promise without it.
func playKnown(t *testing.T, m mutant) error {
	t.Helper()
	bytes, err := hex.DecodeString(m.known)
	require.NoError(t, err)
	s := newSimulation(mutant{})
	defer s.end()
	require.NoError(t, s.run(bytes, false))
	broken := newSimulation(m)
	defer broken.end()
	return broken.run(bytes, false)
}

// explore runs schedules side by side until one breaks a promise.
func explore(first uint64, count int, m mutant) (seed uint64, broken error) {
	var (
		next atomic.Uint64
		stop atomic.Bool
		once sync.Once
		wg   sync.WaitGroup
	)
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
