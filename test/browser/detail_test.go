package browser_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/plugin/ui"
)

// slowSource takes its time to read a node, and counts.
type slowSource struct {
	*ui.Feed

	takes time.Duration
	reads atomic.Int32
}

func (s *slowSource) Node(ctx context.Context, name string) (any, error) {
	s.reads.Add(1)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
	}
	all, err := source{s.Feed}.Node(ctx, name)
	all.(map[string]any)["moments"] = []any{map[string]any{"at": time.Now(), "source": "Node", "text": "it was read"}}
	return all, err
}

// openSlowly opens a page of some nodes, each of which takes some time to read.
func openSlowly(t *testing.T, nodes int, takes time.Duration) (*tab, *slowSource) {
	t.Helper()
	journal := ui.NewJournal()
	src := &slowSource{Feed: fill(journal, nodes), takes: takes}
	server := ui.New(ui.Config{Journal: journal, Source: src})
	link := server.Link(serve(t, server).Listener.Addr().String())
	b := newTab(t)
	b.visit(link)
	b.until(live)
	return b, src
}

// TestPageShowsANodeThatChangesAllTheTime, though it changes faster than it is read.
func TestPageShowsANodeThatChangesAllTheTime(t *testing.T) {
	b, src := openSlowly(t, 1, time.Second)
	n, _ := node(0, "r1")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-time.After(50 * time.Millisecond):
				edited, _ := node(0, time.Now().Format("150405.000000"))
				src.Feed.Node(n, edited, false)
				n = edited
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	b.click(`#rows .row:not([hidden])`)
	for range 2 {
		read := src.reads.Load()
		b.until(`document.querySelector('#detail-body').textContent.includes('it was read')`)
		assert.Eventually(t, func() bool { return src.reads.Load() > read }, patience, 10*time.Millisecond, "it is read again")
	}
}

// TestAgesOfANodeGrow while it is shown.
func TestAgesOfANodeGrow(t *testing.T) {
	b, _ := openSlowly(t, 1, 0)
	b.click(`#rows .row:not([hidden])`)
	b.until(`document.querySelector('#detail-body time') !== null`)
	b.until(`parseInt(document.querySelector('#detail-body time').textContent) >= 3`)
}

// TestPageDoesNotReadNodesThatItPasses while a key is held.
func TestPageDoesNotReadNodesThatItPasses(t *testing.T) {
	b, src := openSlowly(t, 100, 0)
	b.click(`#rows .row:not([hidden])`)
	b.exec(`new Promise((done) => {
		let n = 0;
		const press = () => {
			document.dispatchEvent(new KeyboardEvent('keydown', { key: 'j', bubbles: true }));
			if (++n === 90) done(); else setTimeout(press, 10);
		};
		press();
	})`)
	b.until(`document.querySelector('#detail-body').textContent.includes('it was read')`)
	assert.Less(t, src.reads.Load(), int32(45))
}

// TestSearchByLabelIsRepeatedWhenThePageIsBack: labels may have changed while it was cut off.
func TestSearchByLabelIsRepeatedWhenThePageIsBack(t *testing.T) {
	feed, server := newServer(2, ui.Config{})
	other, _ := node(2, "r2")
	feed.Node(nil, other, false)
	var isDown atomic.Bool
	served := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isDown.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		server.ServeHTTP(w, r)
	}))
	b := newTab(t)
	b.isRefused = true
	b.visit(server.Link(served.Listener.Addr().String()))
	b.until(live)
	b.exec(`document.querySelector('#search').value = 'rack=r1', document.querySelector('#search').dispatchEvent(new Event('input'))`)
	b.until(`document.querySelector('#shown').textContent === '2 of 3 nodes'`)
	isDown.Store(true)
	served.CloseClientConnections()
	b.until(`document.querySelector('#connection').textContent !== 'connected'`)
	before, _ := node(0, "r1")
	after, _ := node(0, "r2")
	feed.Node(before, after, false)
	isDown.Store(false)
	b.until(`document.querySelector('#shown').textContent === '1 of 3 nodes'`)
}
