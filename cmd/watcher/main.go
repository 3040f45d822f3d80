// Command watcher records the events of Nodes as transactions. See docs/design.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus/collectors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/daemon/version"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/internal/watcher"
	"nodekeeper.dev/internal/watcher/barrier"
	"nodekeeper.dev/internal/watcher/stuck"
)

const program = "watcher"

func main() {
	os.Exit(daemon.Main(program, os.Args[1:], os.Stderr, run))
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	var opts service.Options
	fs := flag.NewFlagSet(program, flag.ContinueOnError)
	opts.AddFlags(fs)
	silence := fs.Duration("silence", watcher.DefaultSilence, "the `duration` to wait, after listing the nodes, for another watcher that neither renews its Lease nor reports whether it has stored everything it saw; at least 11s, unless that watcher is of a release that reports nothing")
	headStart := fs.Duration("head-start", 0, "deprecated and ignored: a watcher waits for what the others have seen, not for a fixed time (default 0s)")
	recordUpdates := fs.Bool("record-updates", true, "record changes of labels, not only additions and deletions of nodes, so that they survive even if no watcher sees the node's end")
	if err := opts.Parse(fs, args, stderr); err != nil {
		return err
	}
	if *silence <= 0 {
		return fmt.Errorf("--silence %s: give a positive duration", *silence)
	}
	ctx = daemon.Begin(ctx, fs, stderr, &opts.Options)
	if *headStart != 0 {
		logf.FromContext(ctx).Info("Ignored a deprecated flag", "flag", "head-start", "value", *headStart)
	}
	metrics.Registry.MustRegister(version.Metric(program),
		// controller-runtime registers these only for programs with controllers.
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	past, stream := rewind.New(), &barrier.Stream{}
	stored := watcher.NewStored(opts.TransactionNamespace, opts.MetadataNamespace)
	mgr, err := service.New(ctx, service.Config{
		Program: program, Options: &opts, Cache: cacheOptions(&opts, stream, stored), Rewind: past, Permissions: permissions(&opts),
	})
	if err != nil {
		return err
	}
	all, err := nodes.CacheOf(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	storedInformer, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching transactions and records: %w", err)
	}
	m, err := join(mgr, &opts, settings.Of(fs).Annotations(version.Version))
	if err != nil {
		return err
	}
	stream.Joined = m.waitToJoin
	w, err := watcher.New(ctx, watcher.Config{
		Client:               mgr.GetClient(),
		Nodes:                all,
		Stored:               stored,
		StoredInformer:       storedInformer,
		Stream:               stream,
		Name:                 opts.Identity,
		Members:              m,
		Lease:                m,
		Ring:                 m,
		IsSetBack:            m.IsSetBack,
		Silence:              *silence,
		History:              past,
		Events:               mgr.GetEventRecorder("nodekeeper-" + program),
		Metrics:              metrics.Registry,
		TransactionNamespace: opts.TransactionNamespace,
		MetadataNamespace:    opts.MetadataNamespace,
		RecordUpdates:        *recordUpdates,
		MachineBound:         opts.View.MachineBound,
	})
	if err != nil {
		return err
	}
	if err := report(mgr, all, stored, m); err != nil {
		return err
	}
	if err := add(mgr, w); err != nil {
		return err
	}
	return daemon.Run(ctx, mgr)
}

// add makes the manager run the watcher, its barrier before that, and its probes.
func add(mgr manager.Manager, w *watcher.Watcher) error {
	if err := mgr.AddHealthzCheck("recording", w.Live); err != nil {
		return fmt.Errorf("adding the liveness probe: %w", err)
	}
	if err := mgr.AddReadyzCheck("recording", w.Ready); err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	if err := mgr.Add(early{mgr.GetCache(), w.RunBarrier}); err != nil {
		return fmt.Errorf("adding the barrier: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(w.Run)); err != nil {
		return fmt.Errorf("adding the watcher: %w", err)
	}
	return nil
}

// report makes the manager report Nodes that keep the startup taint, deleted ones that keep the
// finalizer, and those whose record follows another Node.
func report(mgr manager.Manager, all nodes.Cache, stored *watcher.Stored, m members) error {
	recorder := mgr.GetEventRecorder("nodekeeper-" + program)
	owner := func(node string) bool {
		ready, unready := m.Rank(node)
		return ready == 0 && !unready
	}
	r := &stuck.Reporter{Nodes: all, Events: recorder, Owner: owner}
	if err := metrics.Registry.Register(r); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(r.Run)); err != nil {
		return fmt.Errorf("adding the report of gated nodes: %w", err)
	}
	d := &stuck.Deletions{Nodes: all, Events: recorder, Owner: owner}
	if err := mgr.Add(manager.RunnableFunc(d.Run)); err != nil {
		return fmt.Errorf("adding the report of deletions: %w", err)
	}
	u := &stuck.Unfollowed{Nodes: all, Stored: stored, Events: recorder, Owner: owner}
	if err := mgr.Add(manager.RunnableFunc(u.Run)); err != nil {
		return fmt.Errorf("adding the report of replaced records: %w", err)
	}
	return nil
}

// cacheOptions keeps the parts of Nodes that transactions are made from, and the parts of
// transactions and records that identify them.
func cacheOptions(o *service.Options, stream *barrier.Stream, stored *watcher.Stored) cache.Options {
	return cache.Options{
		NewInformer: stream.NewInformer,
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{o.TransactionNamespace: {}, o.MetadataNamespace: {}},
			Transform:  stored.Transform,
		}},
		DefaultTransform: service.ViewNodes(o.View),
	}
}

func permissions(o *service.Options) []daemon.Permission {
	needed := daemon.Permissions("", "nodes", "", "get", "list", "watch")
	needed = append(needed, daemon.Permissions("", "configmaps", o.TransactionNamespace, "create", "get", "list", "watch", "patch")...)
	needed = append(needed, daemon.Permissions("", "configmaps", o.MetadataNamespace, "list", "watch")...)
	return append(needed, service.RingPermissions(o)...)
}
