package daemon

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
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nodekeeper.dev/internal/daemon/connect"
	"nodekeeper.dev/internal/daemon/version"
)

const (
	// shutdownTimeout leaves the process a second of the five in which it must end.
	shutdownTimeout = 4 * time.Second
	// abandonTimeout is when to abandon a manager that should have ended by shutdownTimeout, see
	// [Run].
	abandonTimeout = shutdownTimeout + 500*time.Millisecond
	// readyTimeout is shorter than a probe's default timeout of one second.
	readyTimeout = 500 * time.Millisecond
)

// Config configures a program. All fields are required except Namespaces, Permissions, Check and
// Manager.
type Config struct {
	// Program is the name of the program.
	Program string
	// Options are complete and valid, see [Options.Parse].
	Options *Options
	// Namespaces are created if they are missing, also while the program runs.
	Namespaces []string
	// Permissions are required by the program.
	Permissions []Permission
	// Check returns an error, one line with advice, unless the program can work with the cluster.
	Check func(ctx context.Context, c client.Client) error
	// Manager completes the options of the manager, and may change how it connects.
	Manager func(*rest.Config, *manager.Options) error
}

// Begin creates the logger of the program, which writes JSON lines to w, and returns ctx with it.
// It logs the start with all settings, and sets the logger of libraries that log without a context.
// It must not run concurrently with anything that logs: call it when a program starts.
func Begin(ctx context.Context, fs *flag.FlagSet, w io.Writer, o *Options) context.Context {
	ctx = WithLogger(ctx, w, o)
	log := logf.FromContext(ctx)
	logf.SetLogger(log)
	klog.SetLogger(log)
	LogStart(ctx, fs)
	return ctx
}

// WithLogger returns ctx with the logger of the program, which writes JSON lines to w.
func WithLogger(ctx context.Context, w io.Writer, o *Options) context.Context {
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.Level(-o.Verbosity)})
	log := logr.FromSlogHandler(handler).WithValues("identity", o.Identity)
	return logf.IntoContext(ctx, log)
}

// LogStart logs the program's version and all of its settings.
func LogStart(ctx context.Context, fs *flag.FlagSet) {
	settings := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) { settings[f.Name] = f.Value.String() })
	delete(settings, "version") // not a setting
	logf.FromContext(ctx).Info("Started", "program", fs.Name(), "version", version.Version, "commit", version.Commit(), "flags", settings)
}

// New connects to the cluster, checks it, and returns a manager. With [Options.WaitForCluster], it
// waits until the checks pass. An error is one line with advice. The probes are served from then
// on, until ctx is done.
func New(ctx context.Context, cfg Config) (manager.Manager, error) {
	rc, err := connect.Config(cfg.Program, cfg.Options.Kubeconfig)
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
	spaces, err := watchNamespaces(rc, cfg.Namespaces)
	if err != nil {
		return nil, err
	}
	options := manager.Options{
		Scheme:                  scheme.Scheme,
		Logger:                  logf.FromContext(ctx),
		Metrics:                 metricsserver.Options{BindAddress: cfg.Options.MetricsBindAddress},
		HealthProbeBindAddress:  "0", // see probes
		PprofBindAddress:        cfg.Options.PprofBindAddress,
		GracefulShutdownTimeout: new(shutdownTimeout),
		// The context is not cancelled: runnables that end before the manager stops them never
		// become ready, and then its Start never returns. When the manager is stopped, it stops
		// them in the right order.
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
	}
	if cfg.Manager != nil {
		if err := cfg.Manager(rc, &options); err != nil {
			return nil, err
		}
	}
	made, err := manager.New(rc, options)
	if err != nil {
		return nil, withAdvice(fmt.Errorf("preparing the service: %w", err))
	}
	mgr := withProbes{made, p}
	if err := mgr.AddReadyzCheck("namespaces", spaces.check); err != nil {
		return nil, err
	}
	return mgr, addProbes(mgr)
}

// addProbes adds a readiness check that the cache is synced.
func addProbes(mgr manager.Manager) error {
	err := mgr.AddReadyzCheck("cache", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the cache is not synced: see the log for lists and watches that fail")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	return nil
}

// Run runs the manager until ctx is cancelled. It may return before the manager has ended, so the
// caller must exit.
func Run(ctx context.Context, mgr manager.Manager) error {
	log := logf.FromContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	err := endOf(ctx, ended)
	if errors.Is(err, errAbandoned) {
		log.Info("Stopped before the caches were synced")
		return nil
	}
	if err != nil {
		return withAdvice(fmt.Errorf("running the service: %w", err))
	}
	log.Info("Stopped")
	return nil
}

// errAbandoned means that the manager did not end. This works around a bug in controller-runtime
// v0.25.2: if the manager is cancelled before its caches are synced, for example because the API
// server is unavailable, Start spins forever in runnableGroup.Start
// (https://github.com/kubernetes-sigs/controller-runtime/pull/3440). It is safe to exit then:
// nothing that writes to the cluster has started, and every write may be interrupted at any point
// anyway.
var errAbandoned = errors.New("the manager did not end")

// endOf waits for the manager to end, without limit while ctx lasts and then for abandonTimeout.
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
