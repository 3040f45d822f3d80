package robustness

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/test/sabotage"
)

var (
	firstSeed = flag.Uint64("robustness.seed", 0, "the seed of the first run; each next one has the next seed; 0 for a new one")
	runs      = flag.Int("robustness.seeds", 1, "how many seeds are run; three in a row have every scenario")
	duration  = flag.Duration("robustness.duration", 10*time.Second, "how long there are load and faults in each run")
	logDir    = flag.String("robustness.logs", "", "a directory for what the programs say; empty for none")
	isLoud    = flag.Bool("robustness.faults", false, "print every fault when it begins and ends")
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard()) // the logger of envtest
	os.Exit(m.Run())
}

func TestNoFaultBreaksAPromise(t *testing.T) {
	if *firstSeed == 0 {
		*firstSeed = uint64(time.Now().UnixNano()) % 1e9
	}
	total := &report{faults: map[string]int{}, exits: map[string]int{}, broken: map[error]int{}}
	for i := range *runs {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("%s/seed=%d", scenarioOf(seed).name, seed), func(t *testing.T) { total.add(run(t, seed)) })
	}
	t.Logf("%d runs from seed %d\n%v", *runs, *firstSeed, total)
}

// run is one run of a seed: load and faults, then a quiet time, then the check of every promise.
func run(t *testing.T, seed uint64) *report {
	t.Helper()
	s := scenarioOf(seed)
	t.Logf("make robustness PRODUCT=keeper SEED=%d SEEDS=1 DURATION=%s", seed, *duration)
	w := newWorld(t, s)
	began := time.Now()
	g := w.history(t, seed)
	ended, err := w.storage.revision(t.Context())
	require.NoError(t, err)
	r := newReplay(g)
	require.NoError(t, w.storage.history(t.Context(), ended, r.next))
	r.end()
	result := &report{faults: w.faults, exits: w.exits, broken: r.broken, tally: r.tally}
	t.Logf("seed %d (%s) after %s\n%v", seed, s.name, time.Since(began).Round(time.Second), result)
	for _, v := range r.violations {
		t.Error(v)
	}
	for _, what := range w.failed {
		t.Error(what)
	}
	return result
}

// history runs programs, users and faults, and returns the ghost for their history.
func (w *world) history(t *testing.T, seed uint64) *ghost {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	defer stop()
	watchers := w.start(ctx, "watcher")
	defer watchers()
	processors := w.start(ctx, "processor")
	defer processors()
	defer w.start(ctx, "webhook")()
	w.awaitReady(ctx, t)
	if w.scenario.isBlind {
		w.goBlind(0)
	}

	values := &atomic.Int64{}
	last := &user{world: w, random: rand.New(rand.NewPCG(seed, 0)), values: values}
	w.trouble(t, seed, values)
	w.awaitReady(ctx, t)
	if err := eventually(ctx, w.settled); err != nil {
		w.fail("after all faults were healed: %v", err)
	}
	w.endBlindness(t)

	// Recreate every node once more. Without faults, nothing is excused.
	if err := last.cycle(ctx); err != nil {
		w.fail("%v", err)
	}
	if err := eventually(ctx, w.settled); err != nil {
		w.fail("in the end: %v", err)
	}
	watchers() // they store everything that they have seen before they end
	if err := eventually(ctx, w.settled); err != nil {
		w.fail("after the watchers ended: %v", err)
	}
	processors()
	if w.scenario.isProtected {
		return &ghost{policy: defaultPolicy(), protectorsEnd: true}
	}
	return &ghost{policy: defaultPolicy(), blind: w.blind}
}

// trouble runs users and faults for the duration, and returns when all faults are healed.
func (w *world) trouble(t *testing.T, seed uint64, values *atomic.Int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), *duration)
	defer cancel()
	began := time.Now()
	report := func(format string, args ...any) {
		if *isLoud {
			t.Logf("%6.1fs "+format, append([]any{time.Since(began).Seconds()}, args...)...)
		}
	}
	var all sync.WaitGroup
	for i := range userCount {
		u := &user{world: w, random: rand.New(rand.NewPCG(seed, uint64(1+i))), values: values}
		all.Go(func() { u.run(ctx) })
	}
	s := &sabotage.Saboteur{
		Kinds: w.kinds(), Log: report, Fail: w.fail,
		Injected: func(f sabotage.Fault) { w.count(w.faults, sabotage.TypeName(f)) },
	}
	for i := range saboteurCount {
		all.Go(func() { s.Run(ctx, rand.New(rand.NewPCG(seed, uint64(100+i)))) })
	}
	all.Wait()
}

// endBlindness ends the time in which watchers may be blind.
func (w *world) endBlindness(t *testing.T) {
	t.Helper()
	now, err := w.storage.revision(t.Context())
	require.NoError(t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.blind {
		w.blind[i].to = min(w.blind[i].to, now)
	}
}

// start starts all processes of a program; stop ends them and waits until they have ended.
func (w *world) start(ctx context.Context, program string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, p := range w.crew {
		if p.program == program {
			all.Go(func() { p.run(ctx) })
		}
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func (w *world) awaitReady(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, p := range w.crew {
		require.NoError(t, eventually(ctx, p.ready))
	}
}
