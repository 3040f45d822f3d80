// Command bench measures the sharder on an API server of its own: the overhead of admission on
// creates, the time and the number of writes to move objects, and the memory used. The results are
// in sharding/docs/performance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/test/crds"
	"nodekeeper.dev/test/controlplane"
)

// settings are the parameters of a measurement.
type settings struct {
	objects, creates, children int
	idle                       time.Duration
	concurrency, rounds        int
	kill, leaderElect, direct  bool
	fences                     bool
	profileFile                string
}

func main() {
	var s settings
	flag.IntVar(&s.objects, "objects", 10000, "number of Secrets in the ring")
	flag.IntVar(&s.creates, "creates", 2000, "number of creates of each kind to measure, in blocks of 100; 0 disables the measurement")
	flag.IntVar(&s.children, "children", 0, "number of ConfigMaps that each Secret controls")
	flag.IntVar(&s.rounds, "rounds", 3, "number of times that shards join and leave; results are medians")
	flag.BoolVar(&s.kill, "kill", true, "also measure the death of a shard")
	flag.BoolVar(&s.leaderElect, "leader-elect", true, "whether the sharder uses leader election; if it does, it exits when the API server is too busy to renew its Lease in time")
	flag.BoolVar(&s.direct, "direct", true, "whether the shards complete hand-overs, like shards of the library; otherwise, admission does")
	flag.StringVar(&s.profileFile, "profile", "", "file for a five-second CPU profile of the API server while a policy assigns new objects")
	flag.DurationVar(&s.idle, "idle", time.Minute, "how long to count the requests of a ring at rest; 0 disables the measurement")
	flag.IntVar(&s.concurrency, "concurrency", 100, "number of concurrent writes by the bare client and by each shard")
	flag.BoolVar(&s.fences, "fences", false, "measure only creates and updates in rings that differ in their fence")
	flag.Parse()
	logf.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// stopTimeout is how long the sharder may take to end.
const stopTimeout = 10 * time.Second

func run(ctx context.Context, s settings) (err error) {
	plane, err := controlplane.Start(controlplane.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	if err := crds.Install(ctx, plane.Config); err != nil {
		return err
	}
	b, err := newBench(ctx, plane, s)
	if err != nil {
		return err
	}
	if err := b.createBare(ctx); err != nil {
		return err
	}
	if err := b.startSharder(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.sharder.Stop(stopTimeout)) }()
	steps := []func(context.Context) error{b.prepare, b.createAssigned, b.createOutside, b.fill, b.moves, b.death, b.rest}
	if s.fences {
		steps = []func(context.Context) error{b.compareFences}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return errors.Join(err, errors.New(b.sharder.Output()))
		}
	}
	return b.used("at the end")
}
