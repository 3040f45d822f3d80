// Command processor applies transactions: it saves labels into records and
// restores them onto Nodes. See docs/design.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/daemon/version"
	"nodekeeper.dev/internal/processor"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/sharding/shardlease"
)

const program = "processor"

func main() {
	os.Exit(daemon.Main(program, os.Args[1:], os.Stderr, run))
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	var opts options
	fs := flag.NewFlagSet(program, flag.ContinueOnError)
	opts.addFlags(fs)
	if err := opts.Parse(fs, args, stderr); err != nil {
		return err
	}
	policy, err := opts.policy()
	if err != nil {
		return err
	}
	ctx = daemon.Begin(ctx, fs, stderr, &opts.Options.Options)
	metrics.Registry.MustRegister(version.Metric(program))

	detector, clock := rewind.New(), &shardlease.ServerClock{}
	mgr, err := service.New(ctx, service.Config{
		Program: program, Options: &opts.Options, Cache: opts.cache(), Rewind: detector, Clock: clock, Permissions: opts.permissions(),
	})
	if err != nil {
		return err
	}
	about := settings.Of(fs).Annotations(version.Version)
	member, err := service.Join(mgr, ring.Config{Config: shardlease.Config{Annotations: about}, Group: program}, &opts.Options)
	if err != nil {
		return err
	}
	jobs, err := newJobs(mgr, &opts, policy, clock)
	if err != nil {
		return err
	}
	p, err := processor.New(processor.Config{
		Applier:   jobs.applier,
		Records:   jobs.records,
		Queue:     jobs.queue,
		Index:     jobs.index,
		Locks:     jobs.locks,
		Observer:  jobs.observer,
		Ring:      member,
		Lease:     member,
		SaveDelay: opts.saveDelay,
		Rewind:    detector,
		Workers:   opts.workers,
	}, metrics.Registry)
	if err != nil {
		return err
	}
	for _, register := range []func(manager.Manager) error{jobs.watch(detector), p.Register, jobs.quarantine, jobs.protection(ctx, &opts, detector), jobs.retention(&opts)} {
		if err := register(mgr); err != nil {
			return fmt.Errorf("preparing the processor: %w", err)
		}
	}
	return daemon.Run(ctx, mgr)
}
