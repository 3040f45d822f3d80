package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/test/faultproxy"
)

// A Node has ten minutes to report its machine, by the clock of the API server that created it. That
// clock is an hour ahead of the processor's.
func TestAgeOfANodeIsByTheClockOfTheAPIServer(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.needsProxy()
	proxy, kubeconfig := e.faultProxy()
	proxy.Inject(faultproxy.DateAhead{By: time.Hour})
	e.watcher()
	e.ready(e.start("processor", kubeconfig, "--save-delay=0"))
	name := e.name("node")
	e.trust(name, "gce://p/z/a", "a")
	e.register(name, "", "b")
	e.restored(name, labelSet{"rack": "r7"})
	e.eventually(func(c *assert.CollectT) {
		if r := e.record(c, name); assert.NotNil(c, r) && assert.Len(c, r.Withheld, 1) {
			assert.Equal(c, record.Kept, r.Withheld[0].State, "it does not wait for the providerID")
		}
	}, "an hour after its creation it is another machine")
}
