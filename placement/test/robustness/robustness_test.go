package robustness

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/test/sabotage"
)

var (
	firstSeed = flag.Uint64("robustness.seed", 0, "the seed of the first run; each next one has the next seed; 0 for a new one")
	runs      = flag.Int("robustness.seeds", 1, "how many seeds are run; four in a row have every scenario")
	duration  = flag.Duration("robustness.duration", 30*time.Second, "how long there are wishes and faults in each run")
	logDir    = flag.String("robustness.logs", "", "a directory for what the programs log; empty for none")
)

const (
	// workEnv makes the binary of this test a worker: it is the directory of the journal.
	workEnv = "PLACEMENT_TEST_JOURNAL"
	// calmLimit is the time after the last fault, once all programs run and a controller leads, after
	// which all must be calm. Lost pods lose their work within twice the lease duration. Two rounds of
	// at most 10 moves then even out the load, and each may wait until one program is killed. The rest
	// is for a busy machine.
	calmLimit = 2*leaseDuration + 2*killTime + 3*time.Second
	// killTime is how long a program may ignore SIGTERM before it is killed: stopTime of package agent.
	killTime = 5 * time.Second
	// stillTime is how long a calm pool is observed.
	stillTime = 3 * time.Second
	// maxStop is how long some programs take to end after SIGTERM.
	maxStop = 300 * time.Millisecond
	// deaf is the share of programs that ignore SIGTERM: one in deaf.
	deaf = 10
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(workEnv); dir != "" {
		if err := work(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// work is the program of a virtual replica. It takes a moment to end, and sometimes does not.
func work(dir string) error {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	stopped, err := journal.FromEnv().Begin(dir)
	if err != nil {
		return err
	}
	<-terminated
	if rand.IntN(deaf) == 0 {
		select {} // until SIGKILL
	}
	<-time.After(rand.N(maxStop))
	return stopped()
}

func TestNoFaultBreaksAPromise(t *testing.T) {
	if *firstSeed == 0 {
		*firstSeed = uint64(time.Now().UnixNano()) % 1e9
	}
	for i := range *runs {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("%s/seed=%d", scenarioOf(seed).name, seed), func(t *testing.T) { run(t, seed) })
	}
}

// run is one run of a seed: wishes and faults, then a quiet time, then the check of every promise.
func run(t *testing.T, seed uint64) {
	t.Helper()
	w, began := newWorld(t, scenarioOf(seed)), time.Now()
	t.Logf("make robustness PRODUCT=placement SEED=%d SEEDS=1 DURATION=%s", seed, *duration)
	calmAfter := w.history(t, seed)
	o := w.observer
	if err := journal.Check(o.entries, w.pastRestores()...); err != nil {
		w.fail("%v: %v", errBrokeW1, err)
	}
	if err := checkReady(o.spells, o.sightings, excused(w.troubled), now()); err != nil {
		w.fail("%v", err)
	}
	if t.Failed() || len(w.failed) > 0 {
		t.Logf("faults of seed %d:\n%s", seed, strings.Join(w.log, "\n"))
		for _, e := range o.entries {
			t.Logf("%10.3f %s %s %d epoch %d pid %d pod %s of %s", float64(e.NS)/1e9, e.Event, e.Name, e.Index, e.Epoch, e.PID, e.Pod, e.UID)
		}
	}
	for _, what := range w.failed {
		t.Error(what)
	}
	t.Logf("seed %d (%s) after %s: %s; programs started %d times; calm after %s; programs that ended by themselves: %s",
		seed, w.scenario.name, time.Since(began).Round(time.Second), counts(w.faults), len(o.spells), calmAfter.Round(time.Millisecond), counts(w.exits))
}

// history runs programs, people and faults, and returns how long it took until all was calm.
func (w *world) history(t *testing.T, seed uint64) (calmAfter time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	defer stop()
	observing, endObserving := context.WithCancel(ctx)
	var observers, programs sync.WaitGroup
	for _, follow := range []func(context.Context){w.observer.followJournal, w.observer.followQueues, w.followRestores} {
		observers.Go(func() { follow(observing) })
	}
	running, endRunning := context.WithCancel(ctx)
	for _, p := range w.all() {
		programs.Go(func() { p.run(running) })
	}
	w.awaitPrograms(ctx, time.Time{})
	w.upset(t, seed)
	calmAfter = w.awaitCalm(ctx)
	endRunning()
	programs.Wait()
	endObserving()
	observers.Wait()
	return calmAfter
}

// upset lets people and faults do what they do for the duration, and returns when all faults are
// healed.
func (w *world) upset(t *testing.T, seed uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), *duration)
	defer cancel()
	s := &sabotage.Saboteur{
		Kinds: w.kinds(), MaxHold: maxHold, Log: w.note, Fail: w.fail,
		Injected: func(f sabotage.Fault) {
			if t, ok := f.(*troubling); ok {
				f = t.Fault
			}
			w.count(w.faults, sabotage.TypeName(f))
		},
	}
	var all sync.WaitGroup
	all.Go(func() { (&people{w, rand.New(rand.NewPCG(seed, 0))}).run(ctx) })
	for i := range saboteurCount {
		all.Go(func() { s.Run(ctx, rand.New(rand.NewPCG(seed, uint64(100+i)))) })
	}
	all.Wait()
}

// awaitCalm checks that everything works after the last fault, and returns how long it took once all
// programs ran.
func (w *world) awaitCalm(ctx context.Context) time.Duration {
	healed := time.Now()
	w.note("all faults are healed")
	if err := w.settle(ctx); err != nil {
		w.fail("in the end: %v", err)
	}
	w.awaitPrograms(ctx, healed)
	w.note("all programs run, and a controller leads")
	began := time.Now()
	if err := eventually(ctx, w.calm); err != nil {
		w.fail("%v: %v", errBrokeW2, err)
	}
	took := time.Since(began)
	w.note("all is calm")
	if took > calmLimit {
		w.fail("%v: it took %s", errBrokeW2, took)
	}
	if err := eventually(ctx, w.settled); err != nil {
		w.fail("after a restore: %v", err)
	}
	if err := w.stayStill(ctx); err != nil {
		w.fail("%v: %v", errBrokeW5, err)
	}
	return took
}

// awaitPrograms waits until all programs run, and a controller leads and has renewed its Lease since
// a time.
func (w *world) awaitPrograms(ctx context.Context, since time.Time) {
	for _, p := range w.all() {
		if err := eventually(ctx, p.ready); err != nil {
			w.fail("%v", err)
		}
	}
	if err := eventually(ctx, func(ctx context.Context) error { return w.led(ctx, since) }); err != nil {
		w.fail("%v", err)
	}
}

// led returns nil if a controller leads.
func (w *world) led(ctx context.Context, since time.Time) error {
	l := &coordinationv1.Lease{ObjectMeta: meta("placement-controller")}
	if err := w.client.Get(ctx, client.ObjectKeyFromObject(l), l); err != nil {
		return err
	}
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil || l.Spec.RenewTime.Time.Before(since) {
		return fmt.Errorf("no controller leads: %+v", l.Spec)
	}
	return nil
}

// stayStill waits until nothing but Leases changes for a while.
func (w *world) stayStill(ctx context.Context) error {
	before, since := "", time.Now()
	return eventually(ctx, func(ctx context.Context) error {
		after, err := w.versions(ctx)
		if err != nil {
			return err
		}
		if after != before {
			before, since = after, time.Now()
		}
		if time.Since(since) < stillTime {
			return fmt.Errorf("the last change was %s ago", time.Since(since))
		}
		return nil
	})
}

func counts(of map[string]int) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s %d", what, of[what]))
	}
	return strings.Join(all, ", ")
}
