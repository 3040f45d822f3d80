// Command shardbench measures the sharder on an API server of its own: what admission adds to creates, how long it takes to move objects, with how
// many writes, and how much memory that takes. sharding/docs/performance.md has its figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/sharding/test/rings"
)

// settings say what is measured.
type settings struct {
	objects, creates, children int
	idle                       time.Duration
	concurrency, rounds        int
	kill, leaderElect, direct  bool
	profileFile                string
}

func main() {
	var s settings
	flag.IntVar(&s.objects, "objects", 10000, "how many Secrets the ring shares out")
	flag.IntVar(&s.creates, "creates", 2000, "how many creates are timed, 0: none")
	flag.IntVar(&s.children, "children", 0, "how many ConfigMaps each Secret controls")
	flag.IntVar(&s.rounds, "rounds", 3, "how many times shards join and end: the medians count")
	flag.BoolVar(&s.kill, "kill", true, "also have a shard die without a word")
	flag.BoolVar(&s.leaderElect, "leader-elect", true, "whether the sharder needs a Lease to lead: it ends if the API server is too busy to renew it in time")
	flag.BoolVar(&s.direct, "direct", true, "whether the shards complete hand-overs, as those of the library do; if not, admission does")
	flag.StringVar(&s.profileFile, "profile", "", "file for a CPU profile of the API server, of five seconds while a policy assigns new objects")
	flag.DurationVar(&s.idle, "idle", time.Minute, "for how long the requests of a ring at rest are counted, 0: not at all")
	flag.IntVar(&s.concurrency, "concurrency", 100, "how many objects the bare client, and each shard, write at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (err error) {
	plane, err := controlplane.Start(controlplane.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	if err := rings.Install(ctx, plane.Config); err != nil {
		return err
	}
	b, err := newBench(ctx, plane, s)
	if err != nil {
		return err
	}
	if err := b.createBare(ctx); err != nil {
		return err
	}
	sharder, err := programs.Start("sharder", "bench", plane.Kubeconfig, fmt.Sprintf("--leader-elect=%t", s.leaderElect))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sharder.Stop(10*time.Second)) }()
	b.sharder = sharder
	if err := sharder.WaitReady(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{b.prepare, b.createAssigned, b.fill, b.moves, b.death, b.rest} {
		if err := step(ctx); err != nil {
			return errors.Join(err, errors.New(sharder.Output()))
		}
	}
	return b.used("at the end")
}
