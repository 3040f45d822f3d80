package browser_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// patience is how long a test waits for what must come. A machine that is busy with other things is no reason to fail.
	patience = 3 * time.Minute
	// width and height are those of the window, as people have it on a laptop.
	width, height = 1440, 860
)

// chromium returns the browser: $CHROMIUM, or the first that is in $PATH.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.Fail(t, "there is no Chromium", "hack/chromium finds or installs one; make browser-test runs it")
	return ""
}

// tab is a page in a browser of its own, in which every request and everything that goes wrong is noted.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu        sync.Mutex
	requests  []string
	wrong     []string
	isRefused bool // whether the test has the server refuse or cut requests
}

// newTab starts a browser, which ends with the test. Start its server before, so that the server
// ends after it: the page reports a stream that is cut off. The test fails if a request went
// anywhere but to the page's own origin, or if the page reported an error.
func newTab(t *testing.T) *tab {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium(t)), chromedp.WindowSize(width, height), chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to start as root with it
	}
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...) // the browser ends before the server does
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, b.note))
	b.do(chromedp.EmulateViewport(width, height))
	t.Cleanup(b.check)
	return b
}

// note notes what the browser reports.
func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *network.EventWebSocketCreated:
		b.requests = append(b.requests, e.URL)
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *log.EventEntryAdded: // a violation of the Content-Security-Policy, too
		isExpected := b.isRefused && strings.HasPrefix(e.Entry.Text, "Failed to load resource")
		if e.Entry.Level == log.EntryLevelError && !isExpected {
			b.wrong = append(b.wrong, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

func (b *tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Empty(b.t, b.wrong, "the page reported no error")
	assert.NotEmpty(b.t, b.requests)
	for _, request := range b.requests {
		u, err := url.Parse(request)
		if err == nil && u.Scheme == "data" { // it is in the page
			continue
		}
		if assert.NoError(b.t, err) {
			assert.Equal(b.t, "127.0.0.1", u.Hostname(), "a request left this machine: %s", request)
		}
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// visit opens a link, and returns when the page is there that it leads to.
func (b *tab) visit(link string) {
	b.t.Helper()
	b.do(chromedp.Navigate(link))
	require.Eventually(b.t, func() bool { // no expression outlives that the browser goes on to the page
		found, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](`location.protocol === 'http:' && location.search === '' && document.readyState === 'complete'`))
		return err == nil && found
	}, patience, 10*time.Millisecond)
}

// eval returns the value of an expression in the page, which may be a promise.
func eval[T any](b *tab, expression string, args ...any) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](fmt.Sprintf(expression, args...), chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, expression)
	return value
}

// exec runs a script in the page.
func (b *tab) exec(script string, args ...any) {
	b.t.Helper()
	eval[chromedp.Void](b, script, args...)
}

// click clicks on what a selector finds, as soon as it finds something.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.until(`(() => { const found = document.querySelector(%q); found?.click(); return found !== null })()`, selector)
}

// until waits until an expression in the page is true, which is looked at before each frame.
func (b *tab) until(expression string, args ...any) {
	b.t.Helper()
	expression = fmt.Sprintf(expression, args...)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(patience)))
		if err == nil {
			return
		}
		if ctx.Err() == nil && isOfFormerPage(err) {
			continue
		}
		require.NoError(b.t, err, "%s; the page shows:\n%s", expression, eval[string](b, "document.body.innerText"))
	}
}

// isOfFormerPage reports whether an expression has found no answer as the browser went on to another page meanwhile, or loaded it again.
func isOfFormerPage(err error) bool {
	return slices.ContainsFunc([]string{"Cannot find context", "context was destroyed", "target navigated"}, func(text string) bool {
		return strings.Contains(err.Error(), text)
	})
}

// key presses keys as a person does: a key that the page has taken types no letter.
func (b *tab) key(keys string) {
	b.t.Helper()
	for _, r := range keys {
		for _, event := range kb.Encode(r) {
			switch {
			case event.Type == kb.KeyChar:
				continue // a keyDown with a text types it, unless the page prevents that
			case event.Type == kb.KeyDown && kb.Keys[r] != nil && kb.Keys[r].Print:
				event.Text = kb.Keys[r].Text
			}
			_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, *event)
			require.NoError(b.t, err)
		}
	}
}

// scheme emulates the preference of light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	require.NoError(b.t, err)
}

// rowOf is the expression of the row of a node, null if it is not seen.
func rowOf(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#rows .row:not([hidden])')].find((r) => r.name === %q)`, name)
}

const (
	escape = kb.Escape
	enter  = kb.Enter
	down   = kb.ArrowDown
	pageUp = kb.PageUp
	last   = kb.End
	first  = kb.Home
)

// live is the expression that the page shows everything and follows.
var live = strings.Join([]string{
	`document.querySelector('#connection').textContent === 'connected'`, `document.querySelector('#empty').textContent !== 'Reading the cluster …'`,
}, " && ")
