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
	cancel  context.CancelFunc // ends every request, also those that come later
	forward http.Handler
	watches watches

	mu     sync.Mutex
	faults []*injected // in the order in which they meet a request
}

// Fault is what goes wrong on the way.
type Fault interface {
	// Serve answers a request: by next, which is the API server or the next fault, or in place of it. A watch can last
	// longer than the fault: healed is closed when the fault is over.
	Serve(w http.ResponseWriter, r *http.Request, next http.Handler, healed <-chan struct{})
}

// injected is a Fault that is at work. Its address tells it from another one that is alike.
type injected struct {
	Fault

	healed chan struct{}
}

// Start starts a proxy on a free loopback port. It talks to the API server as the configuration says; the caller owes it a Close.
func Start(cfg *rest.Config) (*Proxy, error) {
	target, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	silent := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // programs that are killed are no news
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{cancel: cancel, forward: &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		// An API server that is away gives no answer at all, and not one of a proxy.
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

// Close ends the proxy and all of its connections. Programs that run on may try to come back meanwhile.
func (p *Proxy) Close() {
	p.cancel()
	p.server.CloseClientConnections()
	p.server.Close()
}

// Kubeconfig says how to reach the API server through the proxy. It needs no credentials.
func (p *Proxy) Kubeconfig() clientcmdapi.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	const name = "proxy"
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: p.server.URL, CertificateAuthorityData: ca}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name}},
		CurrentContext: name,
	}
}

// Inject makes something go wrong from the next request on, until heal is called, which is to be done once.
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

// CutWatches ends all watches that are open, in the middle of their answers.
func (p *Proxy) CutWatches() { p.watches.cut(true) }

// EndWatches ends all watches that are open as the API server ends one that falls behind: its answer is
// complete. It returns how many these were.
func (p *Proxy) EndWatches() int { return p.watches.cut(false) }

// Watching says whether a watch on a resource of the whole cluster, "nodes" for instance, is open.
func (p *Proxy) Watching(resource string) bool { return p.watches.has("/api/v1/" + resource) }

// ServeHTTP takes a request through the faults to the API server.
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

// isWatch says whether the answer to a request is a stream.
func isWatch(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return r.Method == http.MethodGet && (watch == "true" || watch == "1")
}

// isWrite says whether a request changes what is stored. To ask for one's rights is a POST too and stores nothing.
func isWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && !strings.Contains(r.URL.Path, "/authorization.k8s.io/")
}
