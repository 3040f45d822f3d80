package browser_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/ui"
)

// TestPageTellsWhyItDoesNotFollow: a page for which there is no room waits for it, and one whose session is over says so.
func TestPageTellsWhyItDoesNotFollow(t *testing.T) {
	newServer := func() *ui.Server {
		journal := ui.NewJournal()
		feed := ui.NewFeed(journal, "few", func(*inspect.Survey) ui.Health { return ui.Health{Unwell: []string{}, Stuck: []ui.Stuck{}} })
		n, r := node(0, "r1")
		feed.Node(nil, n, true)
		feed.Record(nil, r, true)
		return ui.New(ui.Config{Journal: journal, Source: source{feed}, MaxStreams: 1})
	}
	var server atomic.Pointer[ui.Server]
	server.Store(newServer())
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { server.Load().ServeHTTP(w, r) }))
	t.Cleanup(served.Close)
	t.Cleanup(served.CloseClientConnections)
	host := strings.TrimPrefix(served.URL, "http://")
	says := func(b *tab, text string) {
		b.until(`document.querySelector('#connection').textContent.startsWith(%q)`, text)
	}

	first, second := newTab(t), newTab(t)
	first.isRefused, second.isRefused = true, true
	first.visit(server.Load().Link(host))
	says(first, "live")
	second.visit(server.Load().Link(host))
	says(second, "waiting: too many pages")
	first.do(chromedp.Navigate("about:blank"))
	says(second, "live")

	server.Store(newServer()) // which knows no session of the former one
	served.CloseClientConnections()
	says(second, "ended: open the last link")
}
