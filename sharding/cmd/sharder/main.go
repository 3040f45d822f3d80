// Command sharder distributes the objects of controllers over their replicas, the shards. See
// sharding/docs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/daemon/shortwatch"
	"nodekeeper.dev/internal/daemon/version"
	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/assignment"
	"nodekeeper.dev/sharding/internal/policy"
	"nodekeeper.dev/sharding/internal/rights"
	"nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/shardlease"
)

const program = "sharder"

// A killed leader must be replaced soon: until then, the objects of a dead shard do not move.
const (
	leaseDuration = 6 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
)

func main() {
	os.Exit(daemon.Main(program, os.Args[1:], os.Stderr, run))
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	var opts options
	fs := flag.NewFlagSet(program, flag.ContinueOnError)
	opts.addFlags(fs)
	if err := opts.parse(fs, args, stderr); err != nil {
		return err
	}
	ctx = daemon.Begin(ctx, fs, stderr, &opts.Options)
	metrics.Registry.MustRegister(version.Metric(program))
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return err //nolint:wrapcheck // a bug in this program
	}
	clock, detector := &shardlease.ServerClock{}, rewind.New()
	mgr, err := daemon.New(ctx, daemon.Config{
		Program: program, Options: &opts.Options, Namespaces: []string{opts.namespace}, Permissions: opts.permissions(),
		Check: opts.servesRings, Manager: opts.prepare(clock, detector),
	})
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.Add(rewound{detector}), register(mgr, &opts, clock)); err != nil {
		return fmt.Errorf("preparing the sharder: %w", err)
	}
	return daemon.Run(ctx, mgr)
}

// prepare returns a function that completes the configuration of the manager.
func (o *options) prepare(clock *shardlease.ServerClock, detector *rewind.Detector) func(*rest.Config, *manager.Options) error {
	return func(rc *rest.Config, m *manager.Options) error {
		rc.Wrap(clock.Wrap)
		m.LeaderElection, m.LeaderElectionID, m.LeaderElectionNamespace = o.leaderElect, program, o.namespace
		m.LeaseDuration, m.RenewDeadline, m.RetryPeriod = new(leaseDuration), new(renewDeadline), new(retryPeriod)
		m.LeaderElectionReleaseOnCancel = true
		m.Cache.ByObject, m.Cache.NewInformer = policy.CacheOptions(o.namespace), detector.Informers(nil)
		maps.Copy(m.Cache.ByObject, o.webhook.certificate(o.namespace).ByObject())
		return nil
	}
}

// rewound stops the sharder after etcd was restored from a backup, because its record of Leases and
// objects then describes a history that no longer exists. A restore ends all watches, and the watch
// of the rings detects it on resuming.
type rewound struct{ detector *rewind.Detector }

// Start returns an error once it detects that the cluster was rewound.
func (r rewound) Start(ctx context.Context) error { return r.detector.Run(ctx) } //nolint:wrapcheck // the error needs no context

// NeedLeaderElection returns false: replicas that do not lead keep a record as well.
func (rewound) NeedLeaderElection() bool { return false }

// register adds the controllers to the manager.
func register(mgr manager.Manager, o *options, clock *shardlease.ServerClock) error {
	leases, err := coordinationv1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	objects, err := metadata.NewForConfigAndClient(metadata.ConfigFor(mgr.GetConfig()), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	pods, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	observer := &ring.Observer{Rings: mgr.GetCache(), Leases: shortwatch.Leases(leases), Clock: clock, Dialect: o.dialect()}
	reports, recorder := &ring.Reports{}, mgr.GetEventRecorder(program)
	rings := &ring.Controller{Client: mgr.GetClient(), Observer: observer, Reports: reports, Recorder: recorder, Pods: pods, SyncPeriod: o.syncPeriod}
	if err := rings.Register(mgr, metrics.Registry); err != nil {
		return err //nolint:wrapcheck // the error needs no context
	}
	assignments := &assignment.Controller{
		Reader: mgr.GetCache(), Metadata: objects, Mapper: mgr.GetRESTMapper(), Leases: leases, Observer: observer, Reports: reports, Recorder: recorder,
		Dialect: o.dialect(), Namespace: o.namespace, SyncPeriod: o.syncPeriod, Concurrency: o.concurrentMoves,
	}
	if err := assignments.Register(mgr, metrics.Registry); err != nil {
		return err //nolint:wrapcheck // the error needs no context
	}
	review := &rights.Controller{Client: mgr.GetClient(), Reports: reports, Dialect: o.dialect(), SyncPeriod: o.syncPeriod}
	if err := review.Register(mgr); err != nil {
		return err //nolint:wrapcheck // the error needs no context
	}
	if err := registerMirrors(mgr, o, recorder); err != nil {
		return err
	}
	admission, err := registerAdmission(mgr, o, clock, reports, assignments.Assignments())
	if err != nil {
		return err
	}
	admission.Pods, assignments.Fenced = pods, admission.Fenced
	cleaner := &assignment.Cleaner{
		Client: mgr.GetClient(), Metadata: objects, Mapper: mgr.GetRESTMapper(), Reports: reports, Dialect: o.dialect(),
		Unpolice: admission.Remove, Unaware: observer.Unaware, SyncPeriod: o.syncPeriod, Concurrency: o.concurrentMoves,
	}
	return cleaner.Register(mgr) //nolint:wrapcheck // the error needs no context
}
