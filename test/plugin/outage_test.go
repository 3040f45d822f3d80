package plugin_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

// TestPageReportsThatItIsCutOff checks the page while the API server refuses connections: it warns
// that its contents may be outdated, and reports no replica as unready just because it cannot see
// it. It recovers by itself.
func TestPageReportsThatItIsCutOff(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("watcher")
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.saved("node-1", of("node-1", "r1"))
	r := e.relay()
	p := e.openPage()
	unwell, problems := []any{}, map[string]any{}
	until := func(isSo func() bool) map[string]map[string]any {
		return p.until(func(kind, key string, value map[string]any) bool {
			switch {
			case kind == "problem":
				problems[key] = value["text"] // nil if the problem has ended
			case kind == "meta" && key == "health":
				unwell = value["unwell"].([]any)
			}
			for _, text := range unwell {
				assert.NotContains(t, text, "no ready")
			}
			return key == "health" && isSo()
		})
	}
	isWell := func() bool { return len(unwell) == 0 }
	until(isWell)

	r.close()
	shown := until(func() bool {
		return problems["nodes"] != nil && len(unwell) > 0 && strings.HasPrefix(unwell[0].(string), "the state of nodekeeper is unknown: ")
	})
	assert.Contains(t, problems["nodes"], "connection refused")
	assert.Equal(t, "live", shown["node/node-1"]["state"], "the page shows what it knew last")
	r.open()
	clear(problems)
	until(isWell)
	assert.Nil(t, problems["nodes"])
	assert.Nil(t, problems["replicas"])
	p.close()
}

// TestWatchesReportThatTheyAreCutOff checks the commands that watch: while the API server refuses
// connections, also from their start, they report it once, and later that they have recovered.
func TestWatchesReportThatTheyAreCutOff(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create("node-1", of("node-1", "r1"))
	r := e.relay()
	const cutOff, recovered = "The watch failed and is being retried: ", "The watch has recovered.\n"
	running := map[string]*lineBuffer{}
	for _, args := range [][]string{{"watch"}, {"list", "--watch"}, {"pending", "--watch"}} {
		running[strings.Join(args, " ")] = e.background(args...)
	}
	all := func(message string, check func(c *assert.CollectT, shown string)) {
		for args, out := range running {
			e.eventually(func(c *assert.CollectT) { check(c, out.String()) }, "%s: %s", args, message)
		}
	}
	all("it watches", func(c *assert.CollectT, shown string) { assert.Contains(c, shown, "Watching") })

	r.close()
	running["watch that starts"] = e.background("watch")
	all("it is cut off", func(c *assert.CollectT, shown string) {
		assert.Regexp(c, cutOff+".*connection refused\n(.*\n)?The API server does not answer", shown)
	})
	e.create("node-2", of("node-2", "r1"))
	r.open()
	all("it has recovered", func(c *assert.CollectT, shown string) {
		assert.Contains(c, shown, recovered)
		assert.Contains(c, shown, "Watching")
	})
	for args, out := range running {
		assert.Equal(t, 1, strings.Count(out.String(), "connection refused"), "%s says it once: %s", args, out)
	}
	e.eventually(func(c *assert.CollectT) {
		assert.Regexp(c, `(?m)^node-2 +never-seen `, running["list --watch"].String())
	}, "it shows what it missed")
}

// relay is a connection to the API server that can be closed.
type relay struct {
	t       *testing.T
	address string
	to      string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
}

// relay routes the API requests of the following commands through a relay.
func (e *env) relay() *relay {
	e.t.Helper()
	config, err := clientcmd.LoadFromFile(e.Kubeconfig)
	require.NoError(e.t, err)
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	server, err := url.Parse(cluster.Server)
	require.NoError(e.t, err)
	r := &relay{t: e.t, address: "127.0.0.1:0", to: server.Host}
	r.open()
	e.t.Cleanup(r.close)
	cluster.Server = "https://" + r.address
	e.Kubeconfig = filepath.Join(e.t.TempDir(), "kubeconfig")
	require.NoError(e.t, clientcmd.WriteToFile(*config, e.Kubeconfig))
	return r
}

// open makes the relay listen, at the same address as before.
func (r *relay) open() {
	r.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", r.address)
	require.NoError(r.t, err)
	r.address = listener.Addr().String()
	r.mu.Lock()
	r.listener = listener
	r.mu.Unlock()
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go r.pass(context.WithoutCancel(r.t.Context()), from)
		}
	}()
}

func (r *relay) pass(ctx context.Context, from net.Conn) {
	defer func() { _ = from.Close() }()
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.to)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	r.mu.Lock()
	r.conns = append(r.conns, from, to)
	r.mu.Unlock()
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// close closes all connections, and refuses new ones.
func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.listener.Close()
	for _, conn := range r.conns {
		_ = conn.Close()
	}
	r.conns = nil
}
