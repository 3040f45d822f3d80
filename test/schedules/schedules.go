// Package schedules explores random schedules for simulations. A run is a function of a list of
// bytes, its choices, so a seed reproduces it, and a failing run can be shrunk.
package schedules

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lengths determines the number of choices of schedules: Min to Max, or up to Long in one of
// LongOneIn schedules. Stream makes the schedules of a simulation differ from others.
type Lengths struct {
	Min, Max, Long    int
	LongOneIn, Stream uint64
}

// Choices replaces the contents of bytes by the choices of a seed, and returns the result.
func (l Lengths) Choices(seed uint64, bytes []byte) []byte {
	r := rand.NewPCG(seed, l.Stream)
	limit := l.Max
	if r.Uint64()%l.LongOneIn == 0 {
		limit = l.Long
	}
	count := l.Min + int(r.Uint64()%uint64(limit-l.Min))
	bytes = bytes[:0]
	for len(bytes) < count {
		random := r.Uint64()
		for range 8 {
			bytes = append(bytes, byte(random))
			random >>= 8
		}
	}
	return bytes
}

// Shrink removes and zeroes bytes as long as fails returns true.
func Shrink(bytes []byte, fails func([]byte) bool) []byte {
	for again := true; again; {
		again = false
		for size := max(len(bytes)/2, 1); size >= 1; size /= 2 {
			for at := 0; at+size <= len(bytes); {
				shorter := append(append([]byte{}, bytes[:at]...), bytes[at+size:]...)
				if fails(shorter) {
					bytes, again = shorter, true
					continue
				}
				at += size
			}
		}
		for at, b := range bytes {
			if b == 0 {
				continue
			}
			bytes[at] = 0
			if !fails(bytes) {
				bytes[at] = b
				continue
			}
			again = true
		}
	}
	return bytes
}

// Seed returns the given seed, or a seed that depends on the commit if it is zero, so that every
// commit explores other schedules. Outside a git checkout it returns 1.
func Seed(t *testing.T, given uint64) uint64 {
	t.Helper()
	if given != 0 {
		return given
	}
	commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--short=8", "HEAD").Output()
	if err != nil {
		return 1
	}
	seed, err := strconv.ParseUint(strings.TrimSpace(string(commit)), 16, 64)
	require.NoError(t, err)
	return seed
}

// nearSeeds is the number of seeds that are tried from a recorded one.
const nearSeeds = 20

// Recorded has the seeds of schedules that expose mutants, by the names of the mutants.
type Recorded map[string]uint64

// Seeds returns the first seed to try for a mutant, and how many to try: a few from the recorded
// one, or all of most if there is none or searching is set.
func (r Recorded) Seeds(mutant string, searching bool, most int) (first uint64, count int) {
	seed, ok := r[mutant]
	if searching || !ok {
		return 0, most
	}
	return seed, nearSeeds
}

// Runner runs one schedule at a time. It is not safe for concurrent use.
type Runner interface {
	// Run runs a schedule, and returns an error that wraps the broken promise. It keeps a trace if
	// traced is set.
	Run(choices []byte, traced bool) error
	// Trace returns the trace of the last run.
	Trace() []string
	// End releases the resources of the runner.
	End()
}

// Explore concurrently runs the schedules of count seeds until one breaks a promise. The percentage
// reduces garbage collection, as almost no garbage survives.
func (l Lengths) Explore(first uint64, count, gcPercent int, start func() Runner) (seed uint64, broken error) {
	var (
		next atomic.Uint64
		stop atomic.Bool
		once sync.Once
		wg   sync.WaitGroup
	)
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			r := start()
			defer r.End()
			var bytes []byte
			for !stop.Load() {
				n := next.Add(1) - 1
				if n >= uint64(count) {
					return
				}
				bytes = l.Choices(first+n, bytes)
				if err := r.Run(bytes, false); err != nil {
					once.Do(func() { seed, broken = first+n, err })
					stop.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return seed, broken
}

// Report shrinks a failing schedule, and returns its trace and the command that reproduces it.
func (l Lengths) Report(seed uint64, r Runner, command string) string {
	defer r.End()
	promise := errors.Unwrap(r.Run(l.Choices(seed, nil), false))
	if promise == nil {
		return fmt.Sprintf("seed %d breaks a promise only after other runs: a run leaves something behind", seed)
	}
	small := Shrink(l.Choices(seed, nil), func(bytes []byte) bool { return errors.Is(r.Run(bytes, false), promise) })
	broken := r.Run(small, true)
	return fmt.Sprintf("%v\n%s\nseed %d, shrunk to %d choices; to repeat:\n%s",
		broken, strings.Join(r.Trace(), "\n"), seed, len(small), command)
}

// Command returns the command that reproduces the schedule of a seed in a package, with a kind of
// narrow schedules and a mutant unless these are empty.
func Command(dir string, seed uint64, kind, mutant string) string {
	args := []string{"go test ./" + dir, "-run=TestNoScheduleBreaksAPromise", "-args", "-schedules=1", fmt.Sprintf("-seed=%d", seed)}
	for _, named := range []struct{ flag, value string }{{"kind", kind}, {"mutant", mutant}} {
		if named.value != "" {
			args = append(args, "-"+named.flag+"='"+strings.ReplaceAll(named.value, "'", `'\''`)+"'")
		}
	}
	return strings.Join(args, " ")
}
