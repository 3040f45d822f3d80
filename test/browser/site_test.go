package browser_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

// TestSite opens the documentation site, as make site made it, and finds a page by keyboard.
func TestSite(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	site := filepath.Join(root, "bin", "site")
	require.FileExists(t, filepath.Join(site, "index.html"), "make site makes it")
	server := httptest.NewServer(http.FileServer(http.Dir(site)))
	t.Cleanup(server.Close)

	b := newTab(t)
	b.visit(server.URL)
	b.until(`document.querySelector('.VPSidebar a[href="/docs/how-to/install.html"]') !== null`)
	b.until(`document.querySelector('#app').__vue_app__ !== undefined`) // Vue has mounted, so the page handles keys
	b.key("/")
	b.until(`document.activeElement?.id === 'localsearch-input'`)
	b.key("revoke a node")
	b.until(`document.querySelector('.result.selected')?.getAttribute('href').startsWith('/docs/how-to/revoke-a-node.html')`)
	b.key(enter)
	b.until(`location.pathname === '/docs/how-to/revoke-a-node.html' && document.querySelector('h1').textContent.startsWith('Revoke a node')`)

	// Its path in the repository leads to a page and its section, as the alerts have it.
	b.visit(server.URL + "/docs/reference/alerts.md#nodekeepertransactionstuck")
	b.until(`location.pathname === '/docs/reference/alerts.html' && location.hash === '#nodekeepertransactionstuck'`)

	for _, scheme := range []string{"dark", "light"} {
		b.scheme(scheme)
		b.until(`document.documentElement.classList.contains('dark') === %t`, scheme == "dark")
	}
	for _, picture := range []string{"/", "/docs/explanation/performance.html"} {
		b.visit(server.URL + picture)
		b.until(`[...document.images].length > 0 && [...document.images].every((image) => image.complete)`)
		assert.True(t, eval[bool](b, `[...document.images].every((image) => image.naturalWidth > 0)`), picture)
	}
}
