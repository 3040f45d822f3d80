package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWritesThatWereRefusedHoldNobodyUp rejects the writes of both watchers for a while, as a quota
// does. One watcher may write again first, and stores everything. A moment later the other one may,
// too. A third watcher starts, as in a rolling upgrade.
func TestWritesThatWereRefusedHoldNobodyUp(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.needsProxy()
	var heal []func()
	for range 2 {
		p, path := e.faultProxy()
		e.ready(e.start("watcher", path))
		heal = append(heal, p.Inject(forbids{writesTransactions}))
	}
	const nodes = 400
	for _, name := range e.names(nodes) {
		e.create(name, labelSet{"team": "blue"})
	}
	time.Sleep(5 * time.Second)
	require.Empty(t, e.queued(t))
	healed := time.Now()
	heal[0]()
	e.eventually(func(c *assert.CollectT) { assert.Len(c, e.queued(c), nodes) }, "all is stored")
	t.Logf("all was stored %s after writes were possible again", time.Since(healed))
	heal[1]()
	time.Sleep(5 * time.Second)
	begin := time.Now()
	third := e.start("watcher", e.kubeconfig)
	e.ready(third)
	t.Logf("the third was ready after %s", time.Since(begin))
	assert.Less(t, time.Since(begin), 150*time.Second, "four nodes every two seconds would take 200 s")
}
