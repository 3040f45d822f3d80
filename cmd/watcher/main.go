// Command watcher records the events of Nodes as transactions. See docs/design.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nodekeeper.dev/internal/history"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/version"
	"nodekeeper.dev/internal/watcher"
)

const program = "watcher"

func main() {
	os.Exit(service.Main(program, os.Args[1:], os.Stderr, run))
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	var opts service.Options
	fs := flag.NewFlagSet(program, flag.ContinueOnError)
	opts.AddFlags(fs)
	headStart := fs.Duration("head-start", 5*time.Second, "how `long`, after it has listed the nodes anew, it leaves the recording to other watchers; 0 if it is the only one")
	recordUpdates := fs.Bool("record-updates", true, "record changes of labels too, so that they survive even if no watcher sees the node's end")
	if err := opts.Parse(fs, args, stderr); err != nil {
		return err
	}
	if *headStart < 0 {
		return fmt.Errorf("--head-start %s: give a positive duration, or 0 for none", *headStart)
	}
	ctx = service.WithLogger(ctx, stderr, &opts)
	service.LogStart(ctx, fs)
	metrics.Registry.MustRegister(version.Metric(program))

	past, listings := history.New(), &watcher.Listings{}
	mgr, err := service.New(ctx, service.Config{
		Program: program, Options: &opts, Cache: cacheOptions(&opts, listings), History: past, Permissions: permissions(&opts),
	})
	if err != nil {
		return err
	}
	nodes, err := mgr.GetCache().GetInformer(ctx, nodeMetadata(), cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	stored, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching transactions and records: %w", err)
	}
	member, err := service.Join(mgr, program, &opts)
	if err != nil {
		return err
	}
	w, err := watcher.New(watcher.Config{
		Client:               mgr.GetClient(),
		Nodes:                nodes,
		Stored:               watcher.Stored{Reader: mgr.GetCache(), Informer: stored},
		Turns:                watcher.NewTurns(member),
		Shuffled:             !opts.Ring,
		Listings:             listings,
		HeadStart:            *headStart,
		History:              past,
		Events:               mgr.GetEventRecorder("nodekeeper-" + program),
		Metrics:              metrics.Registry,
		TransactionNamespace: opts.TransactionNamespace,
		MetadataNamespace:    opts.MetadataNamespace,
		RecordUpdates:        *recordUpdates,
	})
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("recording", w.Live); err != nil {
		return fmt.Errorf("adding the liveness probe: %w", err)
	}
	if err := mgr.AddReadyzCheck("recording", w.Ready); err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(w.Run)); err != nil {
		return fmt.Errorf("adding the watcher: %w", err)
	}
	return service.Run(ctx, mgr)
}

func nodeMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
}

// cacheOptions keeps of every Node what a transaction is made from: no status, no annotations. Of transactions and records it keeps
// what tells that they are stored.
func cacheOptions(o *service.Options, listings *watcher.Listings) cache.Options {
	return cache.Options{
		NewInformer: listings.NewInformer,
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{o.TransactionNamespace: {}, o.MetadataNamespace: {}},
			Transform:  watcher.Strip(o.TransactionNamespace),
		}},
		DefaultTransform: service.StripNode,
	}
}

func permissions(o *service.Options) []service.Permission {
	needed := service.Permissions("", "nodes", "", "list", "watch")
	needed = append(needed, service.Permissions("", "configmaps", o.TransactionNamespace, "create", "get", "list", "watch")...)
	needed = append(needed, service.Permissions("", "configmaps", o.MetadataNamespace, "list", "watch")...)
	return append(needed, service.RingPermissions(o)...)
}
