package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"

	"nodekeeper.dev/internal/daemon/connect"
	"nodekeeper.dev/internal/daemon/version"
	"nodekeeper.dev/placement/controller"
	"nodekeeper.dev/placement/internal/poolconfig"
)

// Controller is the command controller. It returns nil if ctx ended.
func Controller(ctx context.Context, args []string, stderr io.Writer) error {
	var o common
	var poolConfig, metrics, probes string
	var elect bool
	fs := flag.NewFlagSet("placement controller", flag.ContinueOnError)
	o.addFlags(fs)
	fs.StringVar(&poolConfig, "pool-config", "", "`file` with the pools (required)")
	fs.BoolVar(&elect, "leader-elect", true, "work only while this process is the leader, by the Lease "+leaderLease+" in $POD_NAMESPACE, or else in the namespace of the first pool")
	fs.StringVar(&metrics, "metrics-bind-address", ":8080", "`address` of the metrics endpoint; 0 for none")
	fs.StringVar(&probes, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 for none")
	if err := o.parse(fs, args, stderr); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: every setting is a flag, see placement controller --help", fs.Arg(0))
	}
	pools, err := readPools(poolConfig)
	if err != nil {
		return err
	}
	cfg, err := connect.Config("placement-controller", o.kubeconfig)
	if err != nil {
		return err
	}
	var t term
	working := rest.CopyConfig(cfg)
	if elect {
		working.Wrap(t.fence)
	}
	c, err := controller.New(working, pools)
	if err != nil {
		return err
	}
	ctx = o.begin(ctx, fs, stderr)
	var isLeader atomic.Bool
	if err := serve(ctx, "metrics", metrics, metricsHandler(c)); err != nil {
		return err
	}
	if err := serve(ctx, "probes", probes, probesHandler(func() bool { return !isLeader.Load() || c.Synced() })); err != nil {
		return err
	}
	if !elect {
		isLeader.Store(true)
		return c.Run(ctx)
	}
	return t.lead(ctx, cfg, cmp.Or(os.Getenv("POD_NAMESPACE"), pools[0].Namespace), func(ctx context.Context) error {
		isLeader.Store(true)
		return c.Run(ctx)
	})
}

func readPools(path string) ([]controller.Pool, error) {
	if path == "" {
		return nil, errors.New("--pool-config is required: see placement controller --help")
	}
	content, err := os.ReadFile(path) //nolint:gosec // the path is a flag
	if err != nil {
		return nil, fmt.Errorf("--pool-config: %w", err)
	}
	pools, err := poolconfig.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("--pool-config %s: %w", path, err)
	}
	return pools, nil
}

// serve serves an address until ctx ends. It does nothing if the address is "0" or empty.
func serve(ctx context.Context, what, address string, handler http.Handler) error {
	if address == "" || address == "0" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for %s: %w: give another address, or 0 for none", what, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // the process ends
	log := logr.FromContextOrDiscard(ctx)
	log.Info("Serving "+what, "address", listener.Addr().String())
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "Serving ended", "what", what)
		}
	}()
	return nil
}

func metricsHandler(c prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(version.Metric("placement-controller"), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), c)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// probesHandler serves /healthz, and /readyz by a function.
func probesHandler(isReady func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !isReady() {
			http.Error(w, "the pools are not synced: see the log", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	return mux
}
