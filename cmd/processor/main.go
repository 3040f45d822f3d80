// Command processor applies transactions: it saves labels into records and
// restores them onto Nodes. See docs/design.md.
package main

import (
	"context"
	"flag"
	"io"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nodekeeper.dev/internal/history"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/processor"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/version"
)

const program = "processor"

func main() {
	os.Exit(service.Main(program, os.Args[1:], os.Stderr, run))
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
	ctx = service.WithLogger(ctx, stderr, &opts.Options)
	service.LogStart(ctx, fs)
	metrics.Registry.MustRegister(version.Metric(program))

	past := history.New()
	mgr, err := service.New(ctx, service.Config{
		Program: program, Options: &opts.Options, Cache: opts.cache(), History: past, Permissions: opts.permissions(),
	})
	if err != nil {
		return err
	}
	if err := processor.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	member, err := service.Join(mgr, program, &opts.Options)
	if err != nil {
		return err
	}
	p, err := processor.New(processor.Config{
		Client:               mgr.GetClient(),
		Cache:                mgr.GetCache(),
		Locks:                nodelock.New(mgr.GetClient(), opts.TransactionNamespace, opts.Identity),
		Turns:                processor.NewTurns(member),
		Shuffled:             !opts.Ring,
		SaveDelay:            opts.saveDelay,
		History:              past,
		Events:               mgr.GetEventRecorder("nodekeeper-" + program),
		Metrics:              metrics.Registry,
		TransactionNamespace: opts.TransactionNamespace,
		MetadataNamespace:    opts.MetadataNamespace,
		Policy:               policy,
		Workers:              opts.workers,
		Retention:            opts.retention,
		Protect:              opts.isProtecting(),
	})
	if err != nil {
		return err
	}
	if err := p.AddTo(mgr); err != nil {
		return err
	}
	return service.Run(ctx, mgr)
}
