package e2e_test

import (
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nodekeeper.dev/test/faultproxy"
)

// gap makes a watcher miss events of nodes: resuming its watch fails as too old, and the list that
// follows waits for the end of the gap.
type gap struct {
	once    sync.Once
	expired atomic.Bool   // whether a watch could not resume
	listed  chan struct{} // closed when the watcher has to list
}

func (g *gap) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, healed <-chan struct{}) {
	query := r.URL.Query()
	streamsList := query.Get("sendInitialEvents") == "true"
	resumes := query.Get("watch") == "true" && !streamsList
	switch {
	case !listsNodes(r) || query.Get("limit") == "1" || query.Get("fieldSelector") != "":
	case resumes:
		g.expired.Store(true)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		_ = json.NewEncoder(w).Encode(apierrors.NewResourceExpired("too old resource version").Status())
		return
	case streamsList || g.expired.Load(): // and no list beside the watch, after which it could still resume
		g.once.Do(func() { close(g.listed) })
		select {
		case <-healed:
		case <-r.Context().Done():
			return
		}
	}
	next.ServeHTTP(w, r)
}

// duringGap does what watchers behind a proxy miss, until they list the Nodes again.
func duringGap(p *faultproxy.Proxy, do func()) {
	missed := &gap{listed: make(chan struct{})}
	heal := p.Inject(missed)
	p.CutWatches()
	<-missed.listed
	do()
	heal()
}

// TestRestoreAfterAGapWaitsForNoSave has a watcher that missed the end of an incarnation, and
// records it under the last resourceVersion that it saw. A save that waits for its batch period
// already has that name.
func TestRestoreAfterAGapWaitsForNoSave(t *testing.T) {
	t.Parallel()
	const batchPeriod = time.Hour
	e := newEnv(t)
	e.needsProxy()
	p, path := e.faultProxy()
	e.ready(e.start("watcher", path))
	saves := e.processor()
	name := e.name("node")
	first := e.create(name, labelSet{"team": "blue"})
	e.saved(name, labelSet{"team": "blue"})
	e.applied(first)
	e.stop(saves)
	e.processor("--save-delay=" + batchPeriod.String())

	e.set(name, "team", "red")
	e.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, e.queued(c)) }, "the update is recorded")
	duringGap(p, func() {
		e.delete(name)
		e.create(name, labelSet{})
	})
	e.restored(name, labelSet{"team": "red"})
}
