package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nodekeeper.dev/internal/history"
	"nodekeeper.dev/internal/version"
)

const (
	// shutdownTimeout leaves the process a second of the five in which it is to end.
	shutdownTimeout = 4 * time.Second
	// abandonTimeout is when a manager is given up that should have ended by shutdownTimeout, see [Run].
	abandonTimeout = shutdownTimeout + 500*time.Millisecond
	// readyTimeout is shorter than the second that a probe waits by default.
	readyTimeout = 500 * time.Millisecond
)

// Config is what a service is made from.
type Config struct {
	// Program is the name of the program.
	Program string
	// Options are complete and valid, see [Options.Parse].
	Options *Options
	// Cache says what the manager's cache holds.
	Cache cache.Options
	// History learns from the informers of that cache. When it went back the service ends. It is nil where
	// that is of no concern.
	History *history.History
	// Permissions are what the service must be allowed to do.
	Permissions []Permission
}

// WithLogger returns ctx with the logger of the program, which writes JSON lines to w. It is to be
// called once: it is the logger of the libraries too.
func WithLogger(ctx context.Context, w io.Writer, o *Options) context.Context {
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.Level(-o.Verbosity)})
	log := logr.FromSlogHandler(handler).WithValues("identity", o.Identity)
	logf.SetLogger(log)
	klog.SetLogger(log)
	return logf.IntoContext(ctx, log)
}

// LogStart logs the program's version and all of its settings.
func LogStart(ctx context.Context, fs *flag.FlagSet) {
	settings := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) { settings[f.Name] = f.Value.String() })
	delete(settings, "version") // no setting, and false here
	logf.FromContext(ctx).Info("Started", "program", fs.Name(), "version", version.Version, "commit", version.Commit(), "flags", settings)
}

// New connects to the cluster, checks that the service can work there, and returns a manager
// whose client reads the API server itself and not the cache. With [Options.WaitForCluster] it returns when the service can work
// there. An error is one line that says what to do. The probes answer from now on, until ctx is done.
func New(ctx context.Context, cfg Config) (manager.Manager, error) {
	rc, err := restConfig(cfg.Program, cfg.Options)
	if err != nil {
		return nil, err
	}
	p := newProbes()
	if err := p.serve(ctx, cfg.Options.HealthProbeBindAddress); err != nil {
		return nil, withAdvice(err)
	}
	if err := checkCluster(ctx, rc, cfg, p); err != nil {
		return nil, err
	}
	if cfg.History != nil {
		cfg.Cache.NewInformer = cfg.History.Informers(cfg.Cache.NewInformer)
	}
	made, err := manager.New(rc, manager.Options{
		Scheme: scheme.Scheme,
		Logger: logf.FromContext(ctx),
		Cache:  compacted(cfg.Cache),
		NewClient: func(config *rest.Config, options client.Options) (client.Client, error) {
			options.Cache = nil
			return client.New(config, options)
		},
		Metrics:                 metricsserver.Options{BindAddress: cfg.Options.MetricsBindAddress},
		HealthProbeBindAddress:  "0", // see probes
		PprofBindAddress:        cfg.Options.PprofBindAddress,
		GracefulShutdownTimeout: new(shutdownTimeout),
		// Without the cancellation: runnables that end before the manager ends them never get ready, and
		// then its Start never returns. The manager ends them, in the right order, when it is told to.
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
	})
	if err != nil {
		return nil, withAdvice(fmt.Errorf("preparing the service: %w", err))
	}
	mgr := withProbes{made, p}
	if err := addProbes(mgr); err != nil {
		return nil, err
	}
	if cfg.History != nil {
		if err := mgr.Add(manager.RunnableFunc(cfg.History.Run)); err != nil {
			return nil, fmt.Errorf("watching over the history of the cluster: %w", err)
		}
	}
	return mgr, nil
}

// addProbes adds to /readyz that the cache is synced.
func addProbes(mgr manager.Manager) error {
	err := mgr.AddReadyzCheck("cache", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the cache is not synced: the log says if a list or a watch fails")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	return nil
}

// Run runs the manager until ctx is cancelled. It may return without the manager having ended: the caller is to exit.
func Run(ctx context.Context, mgr manager.Manager) error {
	log := logf.FromContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	err := endOf(ctx, ended)
	if errors.Is(err, errAbandoned) {
		log.Info("Stopped without the end of what was starting")
		return nil
	}
	if err != nil {
		return withAdvice(fmt.Errorf("running the service: %w", err))
	}
	log.Info("Stopped")
	return nil
}

// errAbandoned says that the manager did not end. controller-runtime v0.24.1 has that fault: if it is cancelled
// and its caches never sync, because the API server is away for instance, Start goes round and round for ever
// (runnableGroup.Start, see https://github.com/kubernetes-sigs/controller-runtime/pull/3440). To exit then
// is right: nothing that writes to the cluster has started, and that may be interrupted at any point anyway.
var errAbandoned = errors.New("the manager did not end")

// endOf waits for the manager's end, for ever while ctx lasts and then for abandonTimeout.
func endOf(ctx context.Context, ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandonTimeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return errAbandoned
	}
}

func withAdvice(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: give another --metrics-bind-address or --health-probe-bind-address, or 0 for none", err)
	}
	return err
}
