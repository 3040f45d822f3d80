package e2e_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/watcher"
	"nodekeeper.dev/internal/watcher/barrier"
)

// forbids temporarily rejects certain writes of a program.
type forbids struct{ which func(*http.Request) bool }

func (f forbids) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if !f.which(r) {
		next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"exceeded quota"}`))
}

func (e *env) asks(t require.TestingT, identity string) string {
	var lease coordinationv1.Lease
	err := e.client.Get(e.t.Context(), client.ObjectKey{Namespace: e.members, Name: identity}, &lease)
	if client.IgnoreNotFound(err) != nil {
		require.NoError(t, err)
	}
	return lease.Annotations[barrier.AsksKey]
}

// longSilence is longer than a watcher waits for another one that it takes for silent.
const longSilence = 3 * watcher.DefaultSilence

// TestDeafWatcherTakesNoOtherForSilent has a watcher that has listed the nodes and asked
// another watcher. The other watcher is alive: it renews its Lease, and answers that it has seen
// only an older state. Then the asking watcher is cut off or stopped for 15 seconds, receives
// nothing, and takes the other watcher for silent.
func TestDeafWatcherTakesNoOtherForSilent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ cut, stop bool }{
		"control: it hears": {},
		"cut off":           {cut: true},
		"stopped":           {stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.needsProxy()
			e.processor()
			p, path := e.faultProxy()
			metrics := freeAddress(t)
			steady := e.start("watcher", path, "--metrics-bind-address="+metrics)
			e.ready(steady)
			node := e.name("node")
			e.create(node, labelSet{"team": "blue"})
			e.saved(node, labelSet{"team": "blue"})

			heal := p.Inject(forbids{writesTransactions})
			e.set(node, "team", "red")
			e.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, complaints(steady, node)) }, "it is seen, and not stored")
			e.delete(node)
			e.create(node, labelSet{})
			e.eventually(func(c *assert.CollectT) {
				assert.GreaterOrEqual(c, e.metric(c, metrics, "nodekeeper_unrecorded_events"), 2.0)
			}, "the end is seen, and the return or an older event waits, too")

			way := e.newProxy()
			starts := e.start("watcher", way.kubeconfig(e))
			e.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, e.asks(c, starts.Identity)) }, "it asks")
			// Nothing is written while it waits, so only time can show that it does not stop to.
			time.Sleep(longSilence)
			require.Empty(t, e.queued(t), "the other one is waited for as long as it takes")

			switch {
			case tc.cut:
				way.setCut(true)
			case tc.stop:
				require.NoError(t, syscall.Kill(starts.PID(), syscall.SIGSTOP))
			}
			time.Sleep(longSilence)
			switch {
			case tc.cut:
				way.setCut(false)
			case tc.stop:
				require.NoError(t, syscall.Kill(starts.PID(), syscall.SIGCONT))
			}
			time.Sleep(longSilence) // what must not happen would happen by now
			assert.Empty(t, e.queued(t))
			own, marker := e.labels(t, node)
			assert.Empty(t, marker, "restored before what the other watcher holds: %v", own)
			heal()
			e.settle()
			e.hasRestored(t, node, labelSet{"team": "red"})
		})
	}
}
