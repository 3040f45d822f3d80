package e2e_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/faultproxy"
)

// hold delays requests before they are forwarded, like the queues of API Priority and Fairness.
type hold struct {
	which func(*http.Request) bool
	by    time.Duration
}

func (h hold) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, healed <-chan struct{}) {
	if h.which(r) {
		select {
		case <-time.After(h.by):
		case <-healed:
		case <-r.Context().Done():
			return
		}
	}
	next.ServeHTTP(w, r)
}

// gate holds requests until it is healed, and closes arrived when it gets the first one.
type gate struct {
	which   func(*http.Request) bool
	arrived chan struct{}
	once    sync.Once
}

func newGate(which func(*http.Request) bool) *gate {
	return &gate{which: which, arrived: make(chan struct{})}
}

func (g *gate) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, healed <-chan struct{}) {
	if g.which(r) {
		g.once.Do(func() { close(g.arrived) })
		select {
		case <-healed:
		case <-r.Context().Done():
			return
		}
	}
	next.ServeHTTP(w, r)
}

// through returns a kubeconfig whose requests pass through a fault.
func (e *env) through(fault faultproxy.Fault) string {
	e.t.Helper()
	p, path := e.faultProxy()
	p.Inject(fault)
	return path
}

func listsNodes(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/api/v1/nodes")
}

func listsRecords(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "-metadata/configmaps") && r.URL.Query().Get("sendInitialEvents") == "true"
}

func writesTransactions(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "-transactions/configmaps")
}

// TestSlowWatcherLosesNothingToOneThatStarts keeps one watcher running throughout, with slow
// writes. Another watcher starts, and its list takes until a node was edited, deleted and
// recreated. The steady watcher has not stored that yet.
func TestSlowWatcherLosesNothingToOneThatStarts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		slow   func(*http.Request) bool
		writes time.Duration
	}{
		"slow list of nodes":           {listsNodes, time.Second},
		"slow cache of what is stored": {listsRecords, 2 * time.Second},
		"writes slower than silence":   {listsNodes, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.needsProxy()
			e.processor()
			steady := e.start("watcher", e.through(hold{writesTransactions, tc.writes}))
			e.ready(steady)
			node := e.name("node")
			e.create(node, labelSet{"team": "blue"})
			e.saved(node, labelSet{"team": "blue"})

			p, path := e.faultProxy()
			list := newGate(tc.slow)
			finish := p.Inject(list)
			e.start("watcher", path)
			select {
			case <-list.arrived:
			case <-time.After(patience):
				require.Fail(t, "it does not list")
			}
			e.set(node, "team", "red")
			e.delete(node)
			e.create(node, labelSet{})
			finish()
			e.restored(node, labelSet{"team": "red"})
			e.settle()
			e.hasRestored(t, node, labelSet{"team": "red"})
		})
	}
}

// TestWatcherWithCompanyRecordsSoon measures the time from the program's first log line to its
// first recorded transaction.
func TestWatcherWithCompanyRecordsSoon(t *testing.T) {
	e := newEnv(t)
	e.watcher()
	e.watcher()
	e.create(e.name("node"), labelSet{"team": "blue"})
	const rounds, limit = 5, 4 * time.Second // usually far less, but the machine may be busy; the watcher's own part is tested in its package
	for range rounds {
		third := e.watcher()
		var began, recorded []map[string]any
		e.eventually(func(c *assert.CollectT) { // the lines come through a pipe
			began, recorded = loggedMessages(third, "Started"), loggedMessages(third, "Compared nodes with their records")
			assert.Len(c, began, 1)
			assert.Len(c, recorded, 1)
		}, "it has logged both")
		took := timeOf(t, recorded[0]).Sub(timeOf(t, began[0]))
		t.Logf("recorded %s after the start of the process", took)
		if took < limit {
			return
		}
		e.stop(third)
	}
	t.Errorf("it has taken %s in each of %d rounds", limit, rounds)
}

func timeOf(t *testing.T, line map[string]any) time.Time {
	t.Helper()
	text, ok := line["time"].(string)
	require.True(t, ok)
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at
}
