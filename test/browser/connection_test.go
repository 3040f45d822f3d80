package browser_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"nodekeeper.dev/internal/plugin/ui"
)

// TestPageReportsWhyItDoesNotFollow: a page for which there is no room waits for it, and one whose
// session has ended shows that.
func TestPageReportsWhyItDoesNotFollow(t *testing.T) {
	var server atomic.Pointer[ui.Server]
	start := func() {
		_, s := newServer(1, ui.Config{MaxStreams: 1})
		server.Store(s)
	}
	start()
	served := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { server.Load().ServeHTTP(w, r) }))
	visits := func(b *tab) { b.visit(server.Load().Link(served.Listener.Addr().String())) }
	shows := func(b *tab, text string) {
		b.until(`document.querySelector('#connection').textContent.startsWith(%q)`, text)
	}

	first, second := newTab(t), newTab(t)
	first.isRefused, second.isRefused = true, true
	visits(first)
	shows(first, "connected")
	visits(second)
	shows(second, "waiting: too many pages")
	first.do(chromedp.Navigate("about:blank"))
	shows(second, "connected")

	start() // it knows no session of the former server
	served.CloseClientConnections()
	shows(second, "ended: open the last link")
}
