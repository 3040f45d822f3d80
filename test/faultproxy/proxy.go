package faultproxy

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy forwards the requests of one program to the API server. It is safe for concurrent use.
type Proxy struct {
	server  *httptest.Server
	cancel  context.CancelFunc // ends every request, including future ones
	forward http.Handler
	watches watches

	mu     sync.Mutex
	faults []*injected // in the order in which they handle a request
}

// Fault is a failure between the program and the API server.
type Fault interface {
	// Serve responds to a request, either by calling next, which is the next fault or the API server,
	// or by itself. A watch can outlast the fault: healed is closed when the fault ends.
	Serve(w http.ResponseWriter, r *http.Request, next http.Handler, healed <-chan struct{})
}

// injected is an active Fault. Its address distinguishes it from an equal one.
type injected struct {
	Fault

	healed chan struct{}
}

// Start starts a proxy on a free loopback port. It connects to the API server with the
// configuration. The caller must close the proxy.
func Start(cfg *rest.Config) (*Proxy, error) {
	target, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	silent := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // errors are expected when programs are killed
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{cancel: cancel, forward: &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		// Abort the connection if the API server is down, since a proxy's response would hide that.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     silent,
	}}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = silent
	p.server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	p.server.StartTLS()
	return p, nil
}

// Close closes the proxy and all of its connections. Running programs may reconnect meanwhile.
func (p *Proxy) Close() {
	p.cancel()
	p.server.CloseClientConnections()
	p.server.Close()
}

// Kubeconfig returns a kubeconfig for the proxy. It contains no credentials.
func (p *Proxy) Kubeconfig() clientcmdapi.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	const name = "proxy"
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: p.server.URL, CertificateAuthorityData: ca}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name}},
		CurrentContext: name,
	}
}

// Inject activates a fault for all later requests, until heal is called, which must happen only
// once.
func (p *Proxy) Inject(f Fault) (heal func()) {
	one := &injected{Fault: f, healed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(slices.Clone(p.faults), one)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(one.healed)
		p.faults = slices.DeleteFunc(slices.Clone(p.faults), func(other *injected) bool { return other == one })
	}
}

// HasFaults reports whether a fault is active.
func (p *Proxy) HasFaults() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.faults) > 0
}

// CutWatches breaks all open watches in the middle of their responses.
func (p *Proxy) CutWatches() { p.watches.cut(true) }

// EndWatches ends all open watches with complete responses, as the API server does if a watch falls
// behind. It returns their number.
func (p *Proxy) EndWatches() int { return p.watches.cut(false) }

// Watching reports whether a watch on a resource of the whole cluster is open, for example "nodes".
func (p *Proxy) Watching(resource string) bool { return p.watches.has("/api/v1/" + resource) }

// ServeHTTP handles a request by the faults and the API server.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	faults := p.faults
	p.mu.Unlock()
	handler := p.forward
	if isWatch(r) {
		handler = p.watches.tracking(handler)
	}
	for _, f := range slices.Backward(faults) {
		next := handler
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.Serve(w, r, next, f.healed) })
	}
	handler.ServeHTTP(w, r)
}

// isWatch reports whether the response to a request is a stream.
func isWatch(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return r.Method == http.MethodGet && (watch == "true" || watch == "1")
}

// isWrite reports whether a request changes stored objects. A SelfSubjectAccessReview is a POST
// request, too, but stores nothing.
func isWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && !strings.Contains(r.URL.Path, "/authorization.k8s.io/")
}
