package ui

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apilabels "k8s.io/apimachinery/pkg/labels"
)

//go:embed assets
var assets embed.FS

// policy is the Content-Security-Policy of every response: only the page's own files, no inline
// script or style, no frame, no form, and no HTML from text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ErrNodeNotFound is returned by a [Source] for a name without a Node, record or transactions.
var ErrNodeNotFound = errors.New("node not found, and no labels are saved for it")

// Source provides data that the journal does not have.
type Source interface {
	// Node returns one node in a form that can be encoded as JSON.
	Node(ctx context.Context, name string) (any, error)
	// Matching returns the names of the nodes whose labels match.
	Matching(selector apilabels.Selector) []string
}

// Config configures a [Server].
type Config struct {
	// Journal and Source have the contents of the page. Both are required.
	Journal *Journal
	Source  Source
	// LinkUsed, if not nil, is called after the link was used and the next link is valid. It must
	// not block.
	LinkUsed func()
	// Clock is as in [Feed].
	Clock func(time.Time) time.Time
	// Heartbeat is the time between heartbeats of a stream, BatchPeriod the time for which changes
	// are collected before they are sent, and WriteTimeout bounds the time of a write. Zero means
	// 15 seconds, 100 milliseconds and 30 seconds.
	Heartbeat, BatchPeriod, WriteTimeout time.Duration
	// MaxStreams bounds the concurrent streams. Zero means 64.
	MaxStreams int
}

// Server serves the page. It is safe for concurrent use.
type Server struct {
	config   Config
	sessions *sessions
	streams  chan struct{} // a semaphore of MaxStreams
	mux      http.Handler
	details  details
}

// New returns a server.
func New(config Config) *Server {
	config.Heartbeat = orDefault(config.Heartbeat, 15*time.Second)
	config.BatchPeriod = orDefault(config.BatchPeriod, 100*time.Millisecond)
	config.WriteTimeout = orDefault(config.WriteTimeout, 30*time.Second)
	config.MaxStreams = orDefault(config.MaxStreams, 64)
	s := &Server{config: config, sessions: newSessions(), streams: make(chan struct{}, config.MaxStreams)}
	s.details.source = config.Source
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.file("index.html", "text/html; charset=utf-8"))
	mux.HandleFunc("GET /app.js", s.file("app.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("GET /style.css", s.file("style.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /icon.svg", s.file("icon.svg", "image/svg+xml"))
	mux.HandleFunc("GET /api/events", s.stream)
	mux.HandleFunc("GET /api/node", s.node)
	mux.HandleFunc("GET /api/matching", s.matching)
	s.mux = mux
	return s
}

func orDefault[T comparable](value, byDefault T) T {
	if none := *new(T); value == none {
		return byDefault
	}
	return value
}

// Link returns the URL of the page on a host, such as 127.0.0.1:8080. It is valid for one use.
func (s *Server) Link(host string) string {
	u := url.URL{Scheme: "http", Host: host, Path: "/", RawQuery: url.Values{tokenParameter: {s.sessions.unused()}}.Encode()}
	return u.String()
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	s.limit(w)
	switch {
	case !isLoopback(r.Host):
		// DNS rebinding: a foreign page may make its own name resolve to this machine.
		refuse(w, http.StatusMisdirectedRequest, "The host of this address is not a loopback name. Use 127.0.0.1 or localhost.")
	case r.URL.Path == "/" && r.URL.Query().Has(tokenParameter):
		s.enter(w, r)
	case isForeign(r) || !s.sessions.admits(r):
		refuse(w, http.StatusUnauthorized, "This address needs a link. Take the last one that kubectl nodekeeper ui has printed: each works once.")
	default:
		s.mux.ServeHTTP(w, r)
	}
}

// limit bounds the time in which a client must read a response, after which it loses its
// connection.
func (s *Server) limit(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.config.WriteTimeout)) // writers of tests do not support it
}

// enter exchanges the token of a link for a cookie.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // a check of the link must not use it up
		refuse(w, http.StatusMethodNotAllowed, "Open this link in a browser.")
		return
	}
	cookie, ok := s.sessions.exchange(r.URL.Query().Get(tokenParameter))
	if !ok {
		if !isForeign(r) && s.sessions.admits(r) { // the page is already open
			s.forward(w)
			return
		}
		refuse(w, http.StatusForbidden, "This link is wrong, or was used. Take the last one that kubectl nodekeeper ui has printed.")
		return
	}
	http.SetCookie(w, cookie)
	if s.config.LinkUsed != nil {
		s.config.LinkUsed()
	}
	s.forward(w)
}

// forward leads to the page, without the token in the address. A redirect does not suffice: after a
// link from another site, browsers send a strict cookie only with requests of a page of this site.
func (s *Server) forward(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	// Without an icon, some browsers request /favicon.ico, which does not exist.
	_, _ = w.Write([]byte(`<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>nodekeeper</title>` +
		`<link rel="icon" href="/icon.svg" type="image/svg+xml">`))
}

// secure sets the headers of every response.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// isLoopback reports whether a Host header is a loopback name.
func isLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, strings.ToLower(name))
}

// isForeign reports whether a page of another origin sends the request. Other ports of this machine
// are other origins, although browsers send cookies to all ports.
func isForeign(r *http.Request) bool {
	// Browsers without Sec-Fetch-Site send Origin.
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return true
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return true
}

func refuse(w http.ResponseWriter, code int, text string) {
	http.Error(w, text, code)
}

func (s *Server) file(name, contentType string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			refuse(w, http.StatusNotFound, err.Error())
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(content)
	}
}

func (s *Server) matching(w http.ResponseWriter, r *http.Request) {
	selector, err := apilabels.Parse(r.URL.Query().Get("selector"))
	if err != nil { // the user is still typing
		writeJSON(w, map[string]any{"names": []string{}, "problem": err.Error()})
		return
	}
	writeJSON(w, map[string]any{"names": append([]string{}, s.config.Source.Matching(selector)...)})
}

func (s *Server) node(w http.ResponseWriter, r *http.Request) {
	found, err := s.details.of(r.Context(), r.URL.Query().Get("name"))
	s.limit(w) // the read has used up some of the time
	switch {
	case errors.Is(err, ErrNodeNotFound):
		refuse(w, http.StatusNotFound, err.Error())
	case err != nil:
		refuse(w, http.StatusBadGateway, err.Error())
	default:
		writeJSON(w, found)
	}
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // an error means that the client is gone
}

const (
	// detailTimeout bounds the time to read one node, and maxDetails the concurrent reads.
	detailTimeout = 20 * time.Second
	maxDetails    = 4
)

// details reads nodes: at most one read of each at a time, which callers share, and only while a
// caller waits.
type details struct {
	source Source

	mu      sync.Mutex
	reading map[string]*detail
	room    chan struct{}
}

// detail is one read, for which several callers may wait.
type detail struct {
	done  chan struct{}
	found any
	err   error

	// The mutex of details guards the fields below. waiting is the number of callers that wait.
	waiting int
	started bool
	// next is the read that starts when this one is done, for callers that came after this one
	// started.
	next *detail
}

// of reads a node. Callers that come during a read share the next one.
func (d *details) of(ctx context.Context, name string) (any, error) {
	one := d.join(ctx, name)
	select {
	case <-one.done:
		return one.found, one.err
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		one.waiting--
		return nil, context.Cause(ctx) //nolint:wrapcheck // the caller's own error
	}
}

// join returns the read for which the caller must wait, and starts it if necessary.
func (d *details) join(ctx context.Context, name string) *detail {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reading == nil {
		d.reading, d.room = map[string]*detail{}, make(chan struct{}, maxDetails)
	}
	one := d.reading[name]
	switch {
	case one == nil:
		one = &detail{done: make(chan struct{})}
		d.reading[name] = one
		go d.read(context.WithoutCancel(ctx), name, one) // other callers may wait for it
	case one.started:
		if one.next == nil {
			one.next = &detail{done: make(chan struct{})}
		}
		one = one.next
	}
	one.waiting++
	return one
}

// read reads a node, and again while callers wait for a next read.
func (d *details) read(ctx context.Context, name string, one *detail) {
	for one != nil {
		d.room <- struct{}{}
		if d.start(one) {
			readCtx, cancel := context.WithTimeout(ctx, detailTimeout)
			one.found, one.err = d.source.Node(readCtx, name)
			cancel()
		}
		<-d.room
		one = d.finish(name, one)
	}
}

// start marks a read as started, and reports whether a caller still waits for it.
func (d *details) start(one *detail) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.started = true
	return one.waiting > 0
}

// finish ends a read, and returns the next one, or nil.
func (d *details) finish(name string, one *detail) *detail {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one.next == nil {
		delete(d.reading, name)
	} else {
		d.reading[name] = one.next
	}
	close(one.done)
	return one.next
}
