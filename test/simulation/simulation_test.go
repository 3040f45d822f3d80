package simulation

import (
	"errors"
	"flag"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/preserve"
)

var (
	schedules = flag.Int("schedules", 300_000, "how many schedules TestNoScheduleBreaksAPromise explores")
	firstSeed = flag.Uint64("seed", 0, "the seed of the first schedule; each next one has the next seed")
)

// mutantSchedules is how many schedules a mutant may survive.
const mutantSchedules = 400_000

func TestNoScheduleBreaksAPromise(t *testing.T) {
	t.Logf("%d schedules from seed %d", *schedules, *firstSeed)
	if seed, err := explore(*firstSeed, *schedules, preserve.Decide, carrying{}); err != nil {
		t.Error(report(seed, err, preserve.Decide, carrying{}))
	}
}

func TestEveryMutantIsFound(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			seed, err := explore(0, mutantSchedules, m.apply, m.carries)
			if assert.Error(t, err, "the simulation cannot tell this mutant from the real thing") {
				t.Logf("found with seed %d: %v", seed, err)
			}
		})
	}
}

// explore runs schedules side by side until one breaks a promise.
func explore(first uint64, count int, d decide, habits carrying) (seed uint64, broken error) {
	var (
		next atomic.Uint64
		stop atomic.Bool
		once sync.Once
		wg   sync.WaitGroup
	)
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				n := next.Add(1) - 1
				if n >= uint64(count) {
					return
				}
				if _, err := run(bytesOf(first+n), d, habits, false); err != nil {
					once.Do(func() { seed, broken = first+n, err })
					stop.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return seed, broken
}

// report shrinks a failing schedule and tells it.
func report(seed uint64, broken error, d decide, habits carrying) string {
	small := shrink(bytesOf(seed), func(b []byte) bool {
		_, err := run(b, d, habits, false)
		return err != nil && errors.Is(broken, errors.Unwrap(err))
	})
	trace, err := run(small, d, habits, true)
	return err.Error() + "\n" + strings.Join(trace, "\n") + "\nto repeat: go test ./test/simulation -schedules=1 -seed=" + strconv.FormatUint(seed, 10)
}

// bytesOf returns the choices of a seed.
func bytesOf(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	choices := make([]byte, 30+r.IntN(200))
	for i := range choices {
		choices[i] = byte(r.Uint32())
	}
	return choices
}
