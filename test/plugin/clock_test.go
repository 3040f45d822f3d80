package plugin_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/faultproxy"
)

// clockBehind makes the local clock of a program appear to be behind that of the API server.
type clockBehind time.Duration

var _ faultproxy.Fault = clockBehind(0)

// Serve implements [faultproxy.Fault].
func (b clockBehind) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	next.ServeHTTP(dated{w, time.Duration(b)}, r)
}

// dated is a ResponseWriter whose Date header is ahead.
type dated struct {
	http.ResponseWriter
	by time.Duration
}

// WriteHeader forwards the code.
func (d dated) WriteHeader(code int) {
	d.Header().Set("Date", time.Now().Add(d.by).UTC().Format(http.TimeFormat))
	d.ResponseWriter.WriteHeader(code)
}

// Unwrap lets watches flush each event.
func (d dated) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// TestAgesAreByTheClockOfTheAPIServer runs every command that shows or compares ages on a machine
// whose clock is three hours behind.
func TestAgesAreByTheClockOfTheAPIServer(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.start("watcher"), e.start("processor")
	e.create("away", set{"rack": "r1"})
	e.saved("away", set{"rack": "r1"})
	e.remove("away")
	e.stop(p)
	e.create("waiting", set{"rack": "r1"})
	e.eventually(func(c *assert.CollectT) { assert.Len(c, e.queued(c), 1) }, "a transaction is pending")
	e.stop(w)
	proxy, err := faultproxy.Start(e.plane.Config)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	proxy.Inject(clockBehind(3 * time.Hour))
	e.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(proxy.Kubeconfig(), e.Kubeconfig))

	const age = `\b3h(\d+m)?\b`
	assert.Regexp(t, `(?m)^away +away +1 +\d+ +`+age+` +`+age, e.must("list"))
	assert.Regexp(t, `(?m)^waiting +.* `+age, e.must("pending"))
	assert.Regexp(t, age, e.must("show", "away"))
	assert.Regexp(t, age, e.must("explain", "away"))
	assert.Regexp(t, `waiting: a transaction \(`+string(txn.Added)+`\) has been pending for `+age, e.run("status").stdout)
	assert.Contains(t, e.must("prune", "--older-than=2h", "--dry-run=client"), "node/away forgotten")
	assert.NotContains(t, e.must("prune", "--older-than=4h", "--dry-run=client"), "away")

	listed, pending := e.background("list", "--watch"), e.background("pending", "--watch")
	e.eventually(func(c *assert.CollectT) {
		assert.Regexp(c, `(?m)^away +away +1 +\d+ +`+age+` +`+age, listed.String())
		assert.Regexp(c, `(?m)^pending +waiting +.* `+age, pending.String())
	}, "watches go by it, too")
}
