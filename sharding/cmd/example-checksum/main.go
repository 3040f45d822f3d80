// Command example-checksum is a sharded controller that keeps the checksums of each Secret in a
// ConfigMap. The Secrets are distributed over its replicas. See sharding/docs/tutorial.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nodekeeper.dev/sharding/shard"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "example-checksum:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	var ring, namespace, leaseNamespace, name, journalFile, metricsAddress string
	var leaseDuration, work time.Duration
	var keepObjects bool
	fs := flag.NewFlagSet("example-checksum", flag.ContinueOnError)
	fs.StringVar(&ring, "ring", "", "`name` of the ClusterRing; if empty, work on all Secrets, without a ring")
	fs.StringVar(&namespace, "namespace", "", "`namespace` of the Secrets; if empty, all namespaces")
	fs.StringVar(&leaseNamespace, "lease-namespace", "", "`namespace` of this shard's Lease (default $POD_NAMESPACE, or else that of the service account)")
	fs.StringVar(&name, "shard-name", defaultName(), "`name` of this shard and of its Lease; by default $POD_NAME, or else the host name")
	fs.DurationVar(&leaseDuration, "lease-duration", 15*time.Second, "how long the Lease is valid without a renewal")
	fs.BoolVar(&keepObjects, "keep-objects", false, "when this shard stops, keep its Secrets for the next process of its name, as in a StatefulSet")
	fs.DurationVar(&work, "work", 0, "how long to sleep in each reconcile")
	fs.StringVar(&journalFile, "journal", "", "`file` to which to append a line whenever work on a Secret begins or ends, or a Secret is released")
	fs.StringVar(&metricsAddress, "metrics-bind-address", "0", "`address` of the metrics endpoint; 0 disables it")
	config.RegisterFlags(fs) // --kubeconfig
	if err := fs.Parse(args); err != nil {
		return err
	}
	log := logr.FromSlogHandler(slog.NewJSONHandler(stderr, nil)).WithValues("shard", name)
	logf.SetLogger(log)
	klog.SetLogger(log)

	j, err := openJournal(journalFile, name)
	if err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	cfg.QPS = -1
	cfg.UserAgent = "example-checksum/" + name
	s, err := shard.New(cfg, shard.Options{
		Ring: ring, Kinds: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}, Standalone: ring == "",
		Name: name, Namespace: leaseNamespace, LeaseDuration: leaseDuration, KeepObjects: keepObjects, Acknowledged: j.acknowledged,
	})
	if err != nil {
		return err
	}
	options := manager.Options{Metrics: metricsserver.Options{BindAddress: metricsAddress}}
	if namespace != "" {
		options.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	mgr, err := s.NewManager(options)
	if err != nil {
		return fmt.Errorf("preparing the controller: %w", err)
	}
	r := &reconciler{client: mgr.GetClient(), work: work, journal: j}
	err = s.ControllerManagedBy(mgr).For(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 5}).Complete(r)
	if err != nil {
		return fmt.Errorf("preparing the controller: %w", err)
	}
	return mgr.Start(ctx)
}

func defaultName() string {
	host, _ := os.Hostname() // if the name is empty, shard.New reports that it is missing
	return cmp.Or(os.Getenv("POD_NAME"), host)
}
