package service_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/ports"
)

// patience is how long a test waits for an expected result. It is long enough for a busy machine.
const patience = 3 * time.Minute

// program is a starting program that waits for its cluster.
type program struct {
	address string // of its probes
	log     buffer
	made    chan error // the result of its start
	cancel  context.CancelFunc
}

// buffer is a buffer for concurrent writers.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// wait starts a program that waits for the cluster of the kubeconfig.
func wait(t *testing.T, kubeconfig string, needed ...daemon.Permission) *program {
	t.Helper()
	p := &program{address: freeAddress(t), made: make(chan error, 1)}
	c, o, fs := newClient(t), &service.Options{}, flag.NewFlagSet("watcher", flag.ContinueOnError)
	o.AddFlags(fs)
	require.NoError(t, o.Parse(fs, []string{
		"--wait-for-cluster", "--kubeconfig=" + kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=" + p.address,
		"--transaction-namespace=" + controlplane.Namespace(t, c), "--metadata-namespace=" + controlplane.Namespace(t, c), "--membership-namespace=" + controlplane.Namespace(t, c),
	}, io.Discard))
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel = cancel
	t.Cleanup(cancel)
	ctx = daemon.WithLogger(ctx, &p.log, &o.Options)
	go func() {
		_, err := service.New(ctx, service.Config{Program: "watcher", Options: o, Permissions: needed})
		p.made <- err
	}()
	return p
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := ports.Address()
	require.NoError(t, err)
	return address
}

// awaitProbe waits until the probe answers with this status and text.
func (p *program) awaitProbe(t *testing.T, path string, status int, text string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.address+path, http.NoBody)
		require.NoError(c, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(c, err)
		defer func() { assert.NoError(c, resp.Body.Close()) }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(c, err)
		assert.Equal(c, status, resp.StatusCode)
		assert.Contains(c, string(body), text)
	}, patience, 20*time.Millisecond)
}

func TestProgramWaitsForPermissions(t *testing.T) {
	u := newUser(t)
	u.grant(t, daemon.Permissions("", "namespaces", "", "get")...)
	p := wait(t, u.kubeconfig, daemon.Permissions("", "nodes", "", "watch")...)
	p.awaitProbe(t, "/readyz", http.StatusInternalServerError, "[-]cluster: this identity may not watch nodes: grant it by a Role or ClusterRole")
	p.awaitProbe(t, "/healthz", http.StatusOK, "")
	<-time.After(6 * time.Second) // long enough for another check
	u.grant(t, daemon.Permissions("", "nodes", "", "watch")...)
	require.NoError(t, <-p.made)
	p.awaitProbe(t, "/readyz", http.StatusInternalServerError, "[+]cluster: ok\n[+]namespaces: ok\n[-]cache: ") // the manager is not started
	assert.Equal(t, 1, strings.Count(p.log.String(), "Preflight checks failed"), "one line:\n%s", p.log.String())
}

// apiServer is a proxy of the real one that reports another version; an empty one stands for an
// unavailable API server.
type apiServer struct {
	version atomic.Value
	asked   atomic.Int32
}

func (a *apiServer) start(t *testing.T, version string) (kubeconfig string) {
	t.Helper()
	a.version.Store(version)
	target, err := url.Parse(api.Config.Host)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, err = rest.TransportFor(api.Config)
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version, _ := a.version.Load().(string)
		if r.URL.Path != "/version" {
			proxy.ServeHTTP(w, r)
			return
		}
		a.asked.Add(1)
		if version == "" {
			http.Error(w, "no backend is up", http.StatusBadGateway) // as from a load balancer
			return
		}
		_, _ = io.WriteString(w, `{"gitVersion":"`+version+`"}`)
	}))
	t.Cleanup(server.Close)
	return write(t, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.Server, c.CertificateAuthorityData = server.URL, nil
	})
}

func TestProgramWaitsForAPIServer(t *testing.T) {
	var a apiServer
	p := wait(t, a.start(t, ""))
	p.awaitProbe(t, "/readyz", http.StatusInternalServerError, "[-]cluster: cannot reach the API server at http://127.0.0.1")
	a.version.Store("v1.20.15")
	p.awaitProbe(t, "/readyz", http.StatusInternalServerError, "is Kubernetes v1.20.15: nodekeeper needs 1.21 or newer")
	a.version.Store("v1.36.3")
	require.NoError(t, <-p.made)
}

func TestVersionsOfAPIServers(t *testing.T) {
	for version, want := range map[string]string{
		"v1.20.15":            "is Kubernetes v1.20.15: nodekeeper needs 1.21 or newer",
		"v1.9.0":              "needs 1.21",
		"v1.21.0-alpha.1":     "",
		"v1.21.0":             "",
		"v1.29.3-eks-adc7111": "",
		"v1.30.1+k3s1":        "",
		"v2.0.0":              "",
		"custom build":        "",
	} {
		t.Run(version, func(t *testing.T) {
			var a apiServer
			_, err := connect(t, a.start(t, version))
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "\n", "an error is one line")
		})
	}
}

func TestWaitingProgramEndsOnCancel(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, listener.Close()) }) // it accepts connections, but never responds
	kubeconfig := write(t, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.Server = "https://" + listener.Addr().String()
	})
	const rounds, limit = 5, 3 * time.Second
	for range rounds { // the first ones may be late on a busy machine
		p := wait(t, kubeconfig)
		p.awaitProbe(t, "/readyz", http.StatusInternalServerError, "the cluster has not been checked yet")
		begin := time.Now()
		p.cancel()
		err = <-p.made
		took := time.Since(begin)
		require.Error(t, err)
		code := daemon.Main("watcher", nil, io.Discard, func(context.Context, []string, io.Writer) error { return err })
		assert.Zero(t, code)
		if took < limit {
			return
		}
	}
	t.Errorf("it has taken %s in each of %d rounds", limit, rounds)
}

func TestProbesReportEveryCheck(t *testing.T) {
	address := freeAddress(t)
	c := newClient(t)
	mgr, err := service.New(t.Context(), service.Config{Program: "watcher", Options: &service.Options{
		Options:              daemon.Options{Kubeconfig: api.Kubeconfig, MetricsBindAddress: "0", HealthProbeBindAddress: address},
		TransactionNamespace: controlplane.Namespace(t, c), MetadataNamespace: controlplane.Namespace(t, c), MembershipNamespace: controlplane.Namespace(t, c),
	}})
	require.NoError(t, err)
	var broken atomic.Bool
	require.NoError(t, mgr.AddHealthzCheck("loop", func(*http.Request) error {
		if broken.Load() {
			return errors.New("nothing has moved for 5m1s")
		}
		return nil
	}))
	p := &program{address: address}
	p.awaitProbe(t, "/healthz", http.StatusOK, "[+]ping: ok\n[+]loop: ok\n")
	broken.Store(true)
	p.awaitProbe(t, "/healthz", http.StatusInternalServerError, "[+]ping: ok\n[-]loop: nothing has moved for 5m1s\n")
}

// The cluster passes, but the program's own check is not added yet.
func TestProgramIsUnreadyBeforeLastCheckIsAdded(t *testing.T) {
	address := freeAddress(t)
	c := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := service.New(ctx, service.Config{Program: "watcher", Options: &service.Options{
		Options:              daemon.Options{Kubeconfig: api.Kubeconfig, MetricsBindAddress: "0", HealthProbeBindAddress: address},
		TransactionNamespace: controlplane.Namespace(t, c), MetadataNamespace: controlplane.Namespace(t, c), MembershipNamespace: controlplane.Namespace(t, c),
	}})
	require.NoError(t, err)
	p := &program{address: address}
	p.awaitProbe(t, "/readyz", http.StatusInternalServerError, "[-]start: the program is starting\n[+]cluster: ok\n")
	require.NoError(t, mgr.AddReadyzCheck("own", func(*http.Request) error { return nil }))
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx, mgr) }()
	p.awaitProbe(t, "/readyz", http.StatusOK, "[+]start: ok\n[+]cluster: ok\n[+]namespaces: ok\n[+]cache: ok\n[+]own: ok\n")
	cancel()
	require.NoError(t, <-ended)
}
