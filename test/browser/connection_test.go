package browser_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"nodekeeper.dev/internal/plugin/ui"
)

// TestPageTellsWhyItDoesNotFollow: a page for which there is no room waits for it, and one whose
// session has ended shows that.
func TestPageTellsWhyItDoesNotFollow(t *testing.T) {
	var server atomic.Pointer[ui.Server]
	start := func() {
		_, s := newServer(1, ui.Config{MaxStreams: 1})
		server.Store(s)
	}
	start()
	served := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { server.Load().ServeHTTP(w, r) }))
	visits := func(b *tab) { b.visit(server.Load().Link(served.Listener.Addr().String())) }
	says := func(b *tab, text string) {
		b.until(`document.querySelector('#connection').textContent.startsWith(%q)`, text)
	}

	first, second := newTab(t), newTab(t)
	first.isRefused, second.isRefused = true, true
	visits(first)
	says(first, "connected")
	visits(second)
	says(second, "waiting: too many pages")
	first.do(chromedp.Navigate("about:blank"))
	says(second, "connected")

	start() // it knows no session of the former server
	served.CloseClientConnections()
	says(second, "ended: open the last link")
}
