package watcher

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/watcher/barrier"
)

// The lock makes both meet, the check first. That is not possible from outside. If they come in
// another order, the test passes.
func TestEventStaysBehindConcurrentResolve(t *testing.T) {
	const moment = 20 * time.Millisecond
	observer := Observer{RecordUpdates: true}
	h := &handler{observer: observer, stream: &barrier.Stream{}, outbox: &Outbox{}, added: func(string) {}}
	listed := &nodeview.Node{Name: "node-1", UID: "a", Revision: revision.MustParse("9")}
	edited := &nodeview.Node{Name: "node-1", UID: "a", Revision: revision.MustParse("10"), Labels: map[string]string{"rack": "r8"}}
	d := listedNode{node: listed, at: time.Now()}
	h.addUnchecked(d)

	var wg sync.WaitGroup
	h.mu.Lock()
	wg.Go(func() { h.resolve(d, observer.CatchUp(listed, nil, false, d.at)) })
	time.Sleep(moment) // there is no other way to wait until a goroutine waits for a mutex
	wg.Go(func() { h.handle(listed, edited, false) })
	time.Sleep(moment)
	h.mu.Unlock()
	wg.Wait()

	entries := h.outbox.byNode["node-1"]
	require.NotEmpty(t, entries)
	assert.Equal(t, "10", entries[len(entries)-1].Revision.String())
}
