package service

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/sharding/shardlease"
)

// Config configures a service.
type Config struct {
	// Program is the name of the program.
	Program string
	// Options are complete and valid, see [Options.Parse].
	Options *Options
	// Cache configures the manager's cache.
	Cache cache.Options
	// Rewind monitors the informers of that cache, and ends the service when the cluster was
	// rewound. It may be nil.
	Rewind *rewind.Detector
	// Clock is set by the responses of the API server. It may be nil.
	Clock *shardlease.ServerClock
	// Permissions are required by the service.
	Permissions []daemon.Permission
	// Check is [daemon.Config].Check. It may be nil.
	Check func(ctx context.Context, c client.Client) error
}

// New returns a manager like [daemon.New]. Its client reads the API server directly, without the
// cache.
func New(ctx context.Context, cfg Config) (manager.Manager, error) {
	o := cfg.Options
	mgr, err := daemon.New(ctx, daemon.Config{
		Program: cfg.Program, Options: &o.Options, Permissions: cfg.Permissions, Check: cfg.Check,
		Namespaces: []string{o.TransactionNamespace, o.MetadataNamespace, o.MembershipNamespace},
		Manager:    cfg.prepare,
	})
	if err != nil {
		return nil, err
	}
	if cfg.Rewind != nil {
		if err := mgr.Add(manager.RunnableFunc(cfg.Rewind.Run)); err != nil {
			return nil, fmt.Errorf("watching for a rewound etcd: %w", err)
		}
	}
	return mgr, nil
}

// prepare completes the options of the manager.
func (cfg Config) prepare(rc *rest.Config, m *manager.Options) (err error) {
	if cfg.Clock != nil {
		rc.Wrap(cfg.Clock.Wrap)
	}
	if cfg.Rewind != nil {
		cfg.Cache.NewInformer = cfg.Rewind.Informers(cfg.Cache.NewInformer)
	}
	if cfg.Cache, err = wholeNodes(rc, cfg.Cache, cfg.Options.View); err != nil {
		return err
	}
	m.Cache = compacted(cfg.Cache)
	m.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
		options.Cache = nil
		return client.New(config, options)
	}
	return nil
}
