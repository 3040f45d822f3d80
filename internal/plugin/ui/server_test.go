package ui_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apilabels "k8s.io/apimachinery/pkg/labels"

	"nodekeeper.dev/internal/plugin/ui"
)

// patience bounds the waits of a test.
const patience = 3 * time.Minute

// source has one node.
type source struct {
	reads   atomic.Int32
	blocked chan struct{} // nil: it is not
}

var _ ui.Source = (*source)(nil)

func (s *source) Node(_ context.Context, name string) (any, error) {
	n := s.reads.Add(1)
	if s.blocked != nil {
		<-s.blocked
	}
	if name != "node-1" {
		return nil, ui.ErrNodeNotFound
	}
	return map[string]any{"name": name, "read": n}, nil
}

func (*source) Matching(selector apilabels.Selector) []string {
	if selector.Matches(apilabels.Set{"rack": "r7"}) {
		return []string{"node-1"}
	}
	return nil
}

// host is the host of the requests.
const host = "127.0.0.1:8080"

func newServer(t *testing.T, config ui.Config) *ui.Server {
	t.Helper()
	if config.Journal == nil {
		config.Journal = ui.NewJournal()
	}
	if config.Source == nil {
		config.Source = &source{}
	}
	return ui.New(config)
}

// ask requests a path with these headers, each "Name: value".
func ask(s http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://"+host+path, nil)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	if of := r.Header.Get("Host"); of != "" {
		r.Host = of
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// cookieIn returns the cookie that a response sets.
func cookieIn(t *testing.T, answer *httptest.ResponseRecorder) *http.Cookie {
	t.Helper()
	c, err := http.ParseSetCookie(answer.Header().Get("Set-Cookie"))
	require.NoError(t, err)
	return c
}

// pathOf returns the path of a link, with its token.
func pathOf(t *testing.T, link string) string {
	t.Helper()
	u, err := url.Parse(link)
	require.NoError(t, err)
	return u.RequestURI()
}

// enter uses the link, and returns the cookie as a header.
func enter(t *testing.T, s *ui.Server) string {
	t.Helper()
	answer := ask(s, pathOf(t, s.Link(host)))
	require.Equal(t, http.StatusOK, answer.Code)
	c := cookieIn(t, answer)
	return "Cookie: " + c.Name + "=" + c.Value
}

func TestLinkIsGoodOnce(t *testing.T) {
	t.Parallel()
	used := 0
	s := newServer(t, ui.Config{LinkUsed: func() { used++ }})
	link := pathOf(t, s.Link(host))
	assert.Equal(t, link, pathOf(t, s.Link(host)), "until it is used")

	answer := ask(s, link)
	assert.Equal(t, http.StatusOK, answer.Code)
	assert.Contains(t, answer.Body.String(), `content="0;url=/"`)
	assert.NotContains(t, answer.Body.String(), "token", "the page that follows has no token in its address")
	c := cookieIn(t, answer)
	assert.True(t, c.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, c.SameSite)
	assert.Empty(t, c.Domain)
	assert.Equal(t, 1, used)

	assert.Equal(t, http.StatusForbidden, ask(s, link).Code, "a token that was used is refused")
	assert.Equal(t, http.StatusOK, ask(s, link, "Cookie: "+c.Name+"="+c.Value).Code, "but who has the cookie goes on")
	assert.NotEqual(t, link, pathOf(t, s.Link(host)))
	assert.Equal(t, http.StatusForbidden, ask(s, "/?token=").Code)
	assert.Equal(t, http.StatusForbidden, ask(s, "/?token=guess").Code)
	assert.Equal(t, 1, used)
}

func TestLinkIsUsedOnceByMany(t *testing.T) {
	t.Parallel()
	s := newServer(t, ui.Config{})
	link := pathOf(t, s.Link(host))
	var entered atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if ask(s, link).Code == http.StatusOK {
				entered.Add(1)
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 1, entered.Load())
}

func TestOnlyTheCookieOpensThePage(t *testing.T) {
	t.Parallel()
	s := newServer(t, ui.Config{})
	cookie := enter(t, s)
	for _, path := range []string{"/", "/app.js", "/style.css", "/icon.svg", "/api/node?name=node-1", "/api/matching?selector=a"} {
		assert.Equal(t, http.StatusUnauthorized, ask(s, path).Code, path)
		assert.Equal(t, http.StatusUnauthorized, ask(s, path, cookie+"x").Code, path)
		assert.Equal(t, http.StatusOK, ask(s, path, cookie).Code, path)
	}
	assert.Equal(t, http.StatusUnauthorized, ask(s, "/api/events").Code)
	assert.Equal(t, http.StatusNotFound, ask(s, "/assets/app.js", cookie).Code)
	other := newServer(t, ui.Config{})
	assert.Equal(t, http.StatusUnauthorized, ask(other, "/", cookie).Code, "a cookie of another process")
	name, _, _ := strings.Cut(cookie, "=")
	ofOther, _, _ := strings.Cut(enter(t, other), "=")
	assert.NotEqual(t, name, ofOther, "processes on two ports do not take each other's cookies away")
}

// TestOldestSessionGivesWay: the number of sessions is bounded.
func TestOldestSessionGivesWay(t *testing.T) {
	t.Parallel()
	s := newServer(t, ui.Config{})
	oldest := enter(t, s)
	var newest string
	for range 32 {
		newest = enter(t, s)
	}
	assert.Equal(t, http.StatusUnauthorized, ask(s, "/", oldest).Code)
	assert.Equal(t, http.StatusOK, ask(s, "/", newest).Code)
}

// TestHostMustBeLoopback: a foreign page that makes its own name resolve to this machine sends that
// name.
func TestHostMustBeLoopback(t *testing.T) {
	t.Parallel()
	s := newServer(t, ui.Config{})
	cookie := enter(t, s)
	link := pathOf(t, s.Link(host))
	for of, want := range map[string]int{
		"127.0.0.1:8080": http.StatusOK, "localhost:9999": http.StatusOK, "LOCALHOST": http.StatusOK, "[::1]:8080": http.StatusOK, "[::1]": http.StatusOK,
		"evil.example:8080": http.StatusMisdirectedRequest, "127.0.0.1.evil.example": http.StatusMisdirectedRequest, "10.0.0.1:8080": http.StatusMisdirectedRequest,
		"localhost.evil.example:80": http.StatusMisdirectedRequest, "0.0.0.0:8080": http.StatusMisdirectedRequest, ":8080": http.StatusMisdirectedRequest,
	} {
		assert.Equal(t, want, ask(s, "/", cookie, "Host: "+of).Code, of)
		if want != http.StatusOK {
			assert.Equal(t, want, ask(s, link, "Host: "+of).Code, of)
		}
	}
	assert.Equal(t, link, pathOf(t, s.Link(host)), "the link is unused")
}

// TestOtherOriginsAreRefused: other ports of this machine get the cookie, too.
func TestOtherOriginsAreRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, ui.Config{})
	cookie := enter(t, s)
	for site, want := range map[string]int{
		"same-origin": http.StatusOK, "none": http.StatusOK, "same-site": http.StatusUnauthorized, "cross-site": http.StatusUnauthorized,
	} {
		assert.Equal(t, want, ask(s, "/api/node?name=node-1", cookie, "Sec-Fetch-Site: "+site).Code, site)
	}
	for origin, want := range map[string]int{
		"http://" + host: http.StatusOK, "http://127.0.0.1:1": http.StatusUnauthorized, "https://" + host: http.StatusUnauthorized, "null": http.StatusUnauthorized,
	} {
		assert.Equal(t, want, ask(s, "/api/node?name=node-1", cookie, "Origin: "+origin).Code, origin)
	}
}

func TestEveryAnswerIsSecured(t *testing.T) {
	t.Parallel()
	s := newServer(t, ui.Config{})
	cookie := enter(t, s)
	for name, answer := range map[string]*httptest.ResponseRecorder{
		"page": ask(s, "/", cookie), "link": ask(s, pathOf(t, s.Link(host))), "script": ask(s, "/app.js", cookie), "none": ask(s, "/none", cookie),
		"refused": ask(s, "/"), "host": ask(s, "/", "Host: evil.example"), "node": ask(s, "/api/node?name=other", cookie),
	} {
		csp := answer.Header().Get("Content-Security-Policy")
		assert.Contains(t, csp, "default-src 'none'; script-src 'self';", name)
		assert.NotContains(t, csp, "unsafe", name)
		assert.Contains(t, csp, "frame-ancestors 'none'", name)
		assert.Equal(t, "nosniff", answer.Header().Get("X-Content-Type-Options"), name)
		assert.Equal(t, "no-referrer", answer.Header().Get("Referrer-Policy"), name)
		assert.Equal(t, "no-store", answer.Header().Get("Cache-Control"), name)
		assert.Empty(t, answer.Header().Get("Access-Control-Allow-Origin"), name)
	}
}

func TestNothingButGetIsServed(t *testing.T) {
	t.Parallel()
	s := newServer(t, ui.Config{})
	cookie := enter(t, s)
	link := pathOf(t, s.Link(host))
	for _, method := range []string{http.MethodTrace, http.MethodOptions, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodHead} {
		for _, path := range []string{"/api/node?name=node-1", "/api/events", link} {
			r := httptest.NewRequest(method, "http://"+host+path, nil)
			r.Header.Set("Cookie", strings.TrimPrefix(cookie, "Cookie: "))
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if method != http.MethodHead || path != "/api/node?name=node-1" {
				assert.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			}
		}
	}
	assert.Equal(t, link, pathOf(t, s.Link(host)), "a link that is looked at is not used up")
}

func TestNodesAndSelectors(t *testing.T) {
	t.Parallel()
	s := newServer(t, ui.Config{})
	cookie := enter(t, s)
	body := func(path string, want int) string {
		answer := ask(s, path, cookie)
		assert.Equal(t, want, answer.Code, path)
		return answer.Body.String()
	}
	assert.JSONEq(t, `{"name":"node-1","read":1}`, body("/api/node?name=node-1", http.StatusOK))
	assert.Contains(t, body("/api/node?name=node-2", http.StatusNotFound), ui.ErrNodeNotFound.Error())
	assert.JSONEq(t, `{"names":["node-1"]}`, body("/api/matching?selector=rack%3Dr7", http.StatusOK))
	assert.JSONEq(t, `{"names":[]}`, body("/api/matching?selector=rack%3Dr8", http.StatusOK))
	assert.Contains(t, body("/api/matching?selector=a%3Db%3Dc", http.StatusOK), "problem")
}

// TestTabsShareTheReadsOfANode: all requests during a read share one further read.
func TestTabsShareTheReadsOfANode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{blocked: make(chan struct{})}
		s := newServer(t, ui.Config{Source: src})
		cookie := enter(t, s)
		answers := make(chan string, 40)
		get := func() {
			answers <- strings.TrimSpace(ask(s, "/api/node?name=node-1", cookie).Body.String())
		}
		go get()
		synctest.Wait()
		for range 39 {
			go get()
		}
		synctest.Wait()
		close(src.blocked)
		counts := map[string]int{}
		for range 40 {
			counts[<-answers]++
		}
		assert.Equal(t, map[string]int{`{"name":"node-1","read":1}`: 1, `{"name":"node-1","read":2}`: 39}, counts)
	})
}

// TestReadsEndWhenTheReaderIsGone: a page that moves through many nodes quickly requests each of
// them, but waits only for the last.
func TestReadsEndWhenTheReaderIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{blocked: make(chan struct{})}
		s := newServer(t, ui.Config{Source: src})
		cookie := strings.TrimPrefix(enter(t, s), "Cookie: ")
		get := func(name string) (leave func()) {
			ctx, cancel := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/api/node?name="+name, nil)
			r.Header.Set("Cookie", cookie)
			go s.ServeHTTP(httptest.NewRecorder(), r)
			synctest.Wait()
			return cancel
		}
		for i := range 100 {
			leave := get("passed-" + strconv.Itoa(i))
			leave()
			synctest.Wait()
		}
		defer get("node-1")()
		close(src.blocked)
		synctest.Wait()
		assert.EqualValues(t, 5, src.reads.Load(), "four were under way")
	})
}

// endless returns more data of a node than the buffers of a client hold.
type endless struct{ source }

func (*endless) Node(context.Context, string) (any, error) { return strings.Repeat("x", 64<<20), nil }

// TestUnreadResponsesEnd: a client that does not read loses its connection.
func TestUnreadResponsesEnd(t *testing.T) {
	t.Parallel()
	s := newServer(t, ui.Config{Source: &endless{}, WriteTimeout: time.Second})
	ended := make(chan struct{})
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r)
		close(ended)
	}))
	t.Cleanup(served.Close)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", served.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	_, err = io.WriteString(conn, "GET /api/node?name=node-1 HTTP/1.1\r\nHost: 127.0.0.1\r\n"+enter(t, s)+"\r\n\r\n")
	require.NoError(t, err)
	select {
	case <-ended:
	case <-time.After(patience):
		require.Fail(t, "the answer is still being written")
	}
}
