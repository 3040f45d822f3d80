package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// probes serves /healthz and /readyz from the start of a program. Those of controller-runtime are
// available only when the manager runs, and withhold the reasons, which show users why a pod is not
// ready. It is safe for concurrent use.
type probes struct {
	mu          sync.Mutex
	live, ready []check
	sealed      bool // all checks have been added
}

// newProbes returns probes that are not ready until complete is called, because checks are added
// one by one.
func newProbes() *probes {
	p := &probes{live: []check{{"ping", healthz.Ping}}}
	p.ready = []check{{"start", p.started}}
	return p
}

func (p *probes) complete() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed = true
}

func (p *probes) started(*http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sealed {
		return errors.New("the program is starting")
	}
	return nil
}

// check is one check of a probe.
type check struct {
	name string
	run  healthz.Checker
}

// withProbes is a manager that adds its checks to the probes.
type withProbes struct {
	manager.Manager

	probes *probes
}

// AddHealthzCheck adds a check to /healthz.
func (m withProbes) AddHealthzCheck(name string, check healthz.Checker) error {
	m.probes.add(&m.probes.live, name, check)
	return nil
}

// AddReadyzCheck adds a check to /readyz.
func (m withProbes) AddReadyzCheck(name string, check healthz.Checker) error {
	m.probes.add(&m.probes.ready, name, check)
	return nil
}

// Start starts the manager. All of its checks have been added by then.
func (m withProbes) Start(ctx context.Context) error {
	m.probes.complete()
	return m.Manager.Start(ctx)
}

func (p *probes) add(to *[]check, name string, run healthz.Checker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*to = append(*to, check{name, run})
}

// serve serves the probes at the address until ctx is done. It does nothing if the address is "0"
// or empty.
func (p *probes) serve(ctx context.Context, address string) error {
	if address == "" || address == "0" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for probes: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", p.handler(&p.live))
	mux.HandleFunc("/readyz", p.handler(&p.ready))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // the process ends
	log := logf.FromContext(ctx)
	log.Info("Serving probes", "address", listener.Addr().String())
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "Failed to serve probes") // the kubelet will notice
		}
	}()
	return nil
}

// each iterates over the checks in order, including those added meanwhile. Once the first check,
// that the program has started, has passed, no more are added.
func (p *probes) each(checks *[]check) iter.Seq[check] {
	next := func(i int) (check, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i == len(*checks) {
			return check{}, false
		}
		return (*checks)[i], true
	}
	return func(yield func(check) bool) {
		for i := 0; ; i++ {
			if c, ok := next(i); !ok || !yield(c) {
				return
			}
		}
	}
}

// handler runs every check and returns all results, with 200 if all succeed, otherwise with 500:
// kubectl get --raw shows its body, unlike that of 503.
func (p *probes) handler(checks *[]check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		var body strings.Builder
		for c := range p.each(checks) {
			if err := c.run(r); err != nil {
				status = http.StatusInternalServerError
				fmt.Fprintf(&body, "[-]%s: %v\n", c.name, err)
				continue
			}
			fmt.Fprintf(&body, "[+]%s: ok\n", c.name)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body.String()) // the client is gone
	}
}
