package plugin_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/faultproxy"
)

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
	proxy.Inject(faultproxy.DateAhead{By: 3 * time.Hour})
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
