package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRefusedWritesHoldNoWatcherUp rejects the writes of both watchers for a while, as a quota
// does. One watcher may write again first, and stores everything. Then the other one may, too, and
// a third watcher starts, as in a rolling upgrade.
func TestRefusedWritesHoldNoWatcherUp(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.needsProxy()
	var heal []func()
	var metrics []string
	for range 2 {
		p, path := e.faultProxy()
		metrics = append(metrics, freeAddress(t))
		e.ready(e.start("watcher", path, "--metrics-bind-address="+metrics[len(metrics)-1]))
		heal = append(heal, p.Inject(forbids{writesTransactions}))
	}
	const nodes = 400
	for _, name := range e.names(nodes) {
		e.create(name, labelSet{"team": "blue"})
	}
	for _, address := range metrics {
		e.eventually(func(c *assert.CollectT) {
			assert.GreaterOrEqual(c, e.metric(c, address, "nodekeeper_unrecorded_events"), float64(nodes))
		}, "it has received all, and cannot store it")
	}
	require.Empty(t, e.queued(t))
	healed := time.Now()
	heal[0]()
	e.eventually(func(c *assert.CollectT) { assert.Len(c, e.queued(c), nodes) }, "all is stored")
	t.Logf("all was stored %s after writes were possible again", time.Since(healed))
	heal[1]()
	begin := time.Now()
	third := e.start("watcher", e.kubeconfig)
	e.ready(third)
	t.Logf("the third was ready after %s", time.Since(begin))
	assert.Less(t, time.Since(begin), 150*time.Second, "four nodes every two seconds would take 200 s")
}
