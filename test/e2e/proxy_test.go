package e2e_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nodekeeper.dev/test/faultproxy"
)

// needsProxy skips a test of programs that reach the API server through a proxy, in a cluster of
// someone else.
func (e *env) needsProxy() {
	e.t.Helper()
	if e.plane == nil {
		e.t.Skip("it needs a proxy to the API server")
	}
}

// faultProxy starts a proxy that injects faults, which ends with the test. It returns the path of a
// kubeconfig that uses it.
func (e *env) faultProxy() (p *faultproxy.Proxy, kubeconfig string) {
	e.t.Helper()
	p, err := faultproxy.Start(e.plane.Config)
	require.NoError(e.t, err)
	e.t.Cleanup(p.Close)
	kubeconfig = filepath.Join(e.t.TempDir(), "kubeconfig")
	require.NoError(e.t, clientcmd.WriteToFile(p.Kubeconfig(), kubeconfig))
	return p, kubeconfig
}

// proxy is a connection to the API server that can be cut.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	isCut bool
	open  map[net.Conn]bool
}

// newProxy starts a proxy for the API server, which ends with the test.
func (e *env) newProxy() *proxy {
	e.t.Helper()
	server, err := url.Parse(e.plane.Config.Host)
	require.NoError(e.t, err)
	listener, err := (&net.ListenConfig{}).Listen(e.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(e.t, err)
	p := &proxy{listener: listener, target: server.Host, open: map[net.Conn]bool{}}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			connections.Go(func() { p.serve(e.t.Context(), conn) })
		}
	})
	e.t.Cleanup(func() {
		_ = listener.Close()
		p.setCut(true)
		connections.Wait()
	})
	return p
}

// kubeconfig returns the path of a kubeconfig that uses the proxy.
func (p *proxy) kubeconfig(e *env) string {
	return e.kubeconfigWith(func(cfg *clientcmdapi.Config) {
		for _, cluster := range cfg.Clusters {
			cluster.Server = "https://" + p.listener.Addr().String()
		}
	})
}

// setCut closes all connections and refuses new ones, or restores the service.
func (p *proxy) setCut(isCut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = isCut
	if isCut {
		for conn := range p.open {
			_ = conn.Close()
		}
	}
}

// serve copies in both directions until one side closes.
func (p *proxy) serve(ctx context.Context, conn net.Conn) {
	defer p.forget(conn)
	if !p.admit(conn) {
		return
	}
	target, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
	if err != nil {
		return // the client gets no answer, as without a proxy
	}
	defer p.forget(target)
	if !p.admit(target) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(conn, target)
		_ = conn.Close()
	})
	_, _ = io.Copy(target, conn)
	_ = target.Close()
	back.Wait()
}

func (p *proxy) admit(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[conn] = true
	return !p.isCut
}

func (p *proxy) forget(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	_ = conn.Close()
}
