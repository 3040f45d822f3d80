// Command webhook restores labels inside the request that creates a Node. It is optional, since the
// processors restore the labels that it does not. See docs/explanation/admission.md.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	admissionserver "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/daemon/servingcert"
	"nodekeeper.dev/internal/daemon/version"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/internal/webhook/admission"
	"nodekeeper.dev/sharding/shardlease"
)

const (
	program = "webhook"
	// path is the path at which the API server calls the webhook.
	path = "/nodes"
)

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

	detector := rewind.New()
	mgr, err := service.New(ctx, service.Config{
		Program: program, Options: &opts.Options, Cache: opts.cache(), Rewind: detector, Permissions: opts.permissions(),
		Check: opts.certificate().Check,
	})
	if err != nil {
		return err
	}
	if err := watchAtOnce(ctx, mgr.GetCache()); err != nil {
		return err
	}
	own := settings.Of(fs)
	about := shardlease.Config{Annotations: own.Annotations(version.Version)}
	member, err := service.Join(mgr, ring.Config{Config: about, Group: program, Standby: true}, &opts.Options)
	if err != nil {
		return err
	}
	behind := func() time.Duration { return detector.Behind(&corev1.ConfigMap{}) } // the watches for the certificate do not matter
	counts, err := admission.NewMetrics(metrics.Registry, behind)
	if err != nil {
		return err
	}
	handler := &admission.Handler{
		Records:    &records.Records{Cache: mgr.GetCache(), Namespace: opts.MetadataNamespace},
		Processors: &admission.Peers{Leases: mgr.GetCache(), Namespace: opts.MembershipNamespace, Settings: own},
		View:       opts.View, Policy: policy, HeldBack: opts.heldBack, Gate: opts.gate, Behind: behind, Metrics: counts,
	}
	if err := serve(mgr, &opts, handler, member); err != nil {
		return fmt.Errorf("preparing the webhook: %w", err)
	}
	return daemon.Run(ctx, mgr)
}

// watchAtOnce makes the cache watch the objects that answers depend on from the start. Otherwise
// the watches would start with the first request, which would then time out. Readiness waits for
// them.
func watchAtOnce(ctx context.Context, watched cache.Cache) error {
	for name, obj := range map[string]client.Object{"records": &corev1.ConfigMap{}, "the Leases of processors": &coordinationv1.Lease{}} {
		if _, err := watched.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %s: %w", name, err)
		}
	}
	return nil
}

// serve makes the manager serve the webhook with the certificate of the Secret. The member's Lease
// shows whether it can serve.
func serve(mgr manager.Manager, o *options, handler *admission.Handler, member *ring.Member) error {
	certificate, err := servingcert.New(o.certificate())
	if err != nil {
		return err //nolint:wrapcheck // the error already names the missing part
	}
	if err := metrics.Registry.Register(certificate); err != nil {
		return err //nolint:wrapcheck // the error already names the metric
	}
	if err := certificate.Register(mgr); err != nil {
		return err //nolint:wrapcheck // the error already names the operation
	}
	server := webhook.NewServer(webhook.Options{Host: o.host, Port: o.port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion, c.GetCertificate = tls.VersionTLS13, certificate.GetCertificate
	}}})
	server.Register(path, &admissionserver.Webhook{Handler: handler})
	checks := map[string]healthz.Checker{"certificate": certificate.Ready, "records": handler.Ready}
	for name, check := range checks {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return err //nolint:wrapcheck // the error already names the check
		}
	}
	if err := mgr.Add(service.ServeWhile(member, slices.Collect(maps.Values(checks))...)); err != nil {
		return err //nolint:wrapcheck // the error already names the missing part
	}
	return mgr.Add(server)
}
