package ui_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/plugin/ui"
)

// event is one event of a stream.
type event struct {
	name, id, data string
}

// serve serves for real, and returns the address and the cookie.
func serve(t *testing.T, s *ui.Server) (address, cookie string) {
	t.Helper()
	served := httptest.NewServer(s)
	t.Cleanup(served.Close)
	t.Cleanup(served.CloseClientConnections)
	return strings.TrimPrefix(served.URL, "http://"), strings.TrimPrefix(enter(t, s), "Cookie: ")
}

// open opens a stream, whose events come on the channel. It ends with ctx.
func open(ctx context.Context, t *testing.T, address, cookie string) <-chan event {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/events", nil)
	require.NoError(t, err)
	r.Header.Set("Cookie", cookie)
	answer, err := http.DefaultClient.Do(r) //nolint:bodyclose // it is, when the stream ends
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	events := make(chan event, 1000)
	go func() {
		defer close(events)
		defer func() { _ = answer.Body.Close() }()
		var e event
		for lines := bufio.NewReader(answer.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch name {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data = value
			case "":
				events <- e
				e = event{}
			}
		}
	}()
	return events
}

func next(t *testing.T, events <-chan event) event {
	t.Helper()
	select {
	case e, ok := <-events:
		require.True(t, ok, "the stream has ended")
		return e
	case <-time.After(patience):
		require.Fail(t, "nothing comes")
		return event{}
	}
}

func changesIn(t *testing.T, e event) map[string]string {
	t.Helper()
	require.Equal(t, "changes", e.name)
	var changes []ui.Change
	require.NoError(t, json.Unmarshal([]byte(e.data), &changes))
	all := map[string]string{}
	for _, ch := range changes {
		all[ch.Kind+"/"+ch.Key] = string(ch.Value)
	}
	return all
}

func TestStreamIsASnapshotAndThenChanges(t *testing.T) {
	t.Parallel()
	j := ui.NewJournal()
	for i := range 1200 {
		require.NoError(t, j.Set("node", strconv.Itoa(i), i))
	}
	address, cookie := serve(t, newServer(t, ui.Config{Journal: j, BatchPeriod: time.Millisecond}))
	ctx, cancel := context.WithCancel(t.Context())
	events := open(ctx, t, address, cookie)
	assert.Equal(t, event{"reset", "0", "null"}, next(t, events))
	all := map[string]string{}
	for _, size := range []int{500, 500, 200} {
		part := changesIn(t, next(t, events))
		assert.Len(t, part, size)
		maps.Copy(all, part)
	}
	assert.Len(t, all, 1200)
	ready := next(t, events)
	assert.Equal(t, "ready", ready.name)
	assert.Equal(t, "1200", ready.id)

	require.NoError(t, j.Set("node", "7", "new"))
	e := next(t, events)
	assert.Equal(t, "1201", e.id)
	assert.Equal(t, map[string]string{"node/7": `"new"`}, changesIn(t, e))
	j.Remove("node", "7")
	assert.Equal(t, map[string]string{"node/7": ""}, changesIn(t, next(t, events)))
	cancel()

	again := open(t.Context(), t, address, cookie)
	assert.Equal(t, "reset", next(t, again).name, "who comes back starts from the beginning")
}

// TestStreamBeginsAfterMuchHasGone: the journal has dropped removals, and the remaining entries are
// old and do not fit into one event.
func TestStreamBeginsAfterMuchHasGone(t *testing.T) {
	t.Parallel()
	j := ui.NewJournal()
	for i := range 1200 {
		require.NoError(t, j.Set("node", strconv.Itoa(i), i))
	}
	for i := range 11_000 {
		require.NoError(t, j.Set("transaction", strconv.Itoa(i), i))
		j.Remove("transaction", strconv.Itoa(i))
	}
	address, cookie := serve(t, newServer(t, ui.Config{Journal: j}))
	events := open(t.Context(), t, address, cookie)
	for _, want := range []string{"reset", "changes", "changes", "changes", "ready"} {
		require.Equal(t, want, next(t, events).name)
	}
}

func TestStreamShowsThatItLives(t *testing.T) {
	t.Parallel()
	address, cookie := serve(t, newServer(t, ui.Config{Heartbeat: 10 * time.Millisecond}))
	events := open(t.Context(), t, address, cookie)
	for _, want := range []string{"reset", "ready", "beat", "beat"} {
		e := next(t, events)
		assert.Equal(t, want, e.name)
		if want != "reset" {
			assert.Regexp(t, `^\{"now":\d+\}$`, e.data)
		}
	}
}

// TestPageHasTheTimeOfTheCluster, from which it computes ages.
func TestPageHasTheTimeOfTheCluster(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_000_000)
	address, cookie := serve(t, newServer(t, ui.Config{Clock: func(time.Time) time.Time { return at }}))
	events := open(t.Context(), t, address, cookie)
	next(t, events)
	assert.Equal(t, event{"ready", "0", `{"now":1000000}`}, next(t, events))
}

func TestStreamsAreLimited(t *testing.T) {
	t.Parallel()
	address, cookie := serve(t, newServer(t, ui.Config{MaxStreams: 2}))
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		next(t, open(ctx, t, address, cookie))
	}
	assert.Equal(t, http.StatusServiceUnavailable, status(t, address, cookie, true))
	cancel()
	assert.Eventually(t, func() bool { return status(t, address, cookie, true) == http.StatusOK }, patience, 10*time.Millisecond, "those that are gone make room")
}

// TestStreamEndsWithItsSession: an open page loses its stream when the cookie expires.
func TestStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, ui.Config{})
		cookie, began := enter(t, s), time.Now()
		answer := ask(s, "/api/events", cookie)
		assert.Equal(t, http.StatusOK, answer.Code)
		assert.Contains(t, answer.Body.String(), "event: beat")
		assert.Equal(t, 12*time.Hour, time.Since(began))
		assert.Equal(t, http.StatusUnauthorized, ask(s, "/api/events", cookie).Code)
	})
}

// TestStreamEndsWhenItsSessionGivesWay to newer sessions.
func TestStreamEndsWhenItsSessionGivesWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, ui.Config{})
		cookie, began := enter(t, s), time.Now()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			ask(s, "/api/events", cookie)
		}()
		time.Sleep(time.Hour)
		for range 32 {
			enter(t, s)
		}
		<-ended
		assert.LessOrEqual(t, time.Since(began), time.Hour+time.Minute)
	})
}

// status returns the status of a request for a stream, which ends at once or with the test.
func status(t *testing.T, address, cookie string, atOnce bool) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/events", nil)
	require.NoError(t, err)
	r.Header.Set("Cookie", cookie)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	if atOnce {
		require.NoError(t, answer.Body.Close())
	} else {
		t.Cleanup(func() { assert.NoError(t, answer.Body.Close()) })
	}
	return answer.StatusCode
}

// TestSlowClientsCostNoMemoryAndAreDropped: ten clients read nothing while every entry changes a
// hundred times. The server keeps nothing for them, and drops them.
//
// Not parallel: what it measures is of the whole process.
func TestSlowClientsCostNoMemoryAndAreDropped(t *testing.T) {
	const clients, entries, rounds = 10, 2000, 100
	j := ui.NewJournal()
	value := strings.Repeat("x", 500)
	fill := func(round int) {
		for i := range entries {
			require.NoError(t, j.Set("node", strconv.Itoa(i), strconv.Itoa(round)+value))
		}
	}
	fill(0)
	address, cookie := serve(t, newServer(t, ui.Config{Journal: j, BatchPeriod: time.Millisecond, WriteTimeout: time.Second, MaxStreams: clients}))
	conns := make([]net.Conn, clients)
	for i := range conns {
		var err error
		conns[i], err = (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, conns[i].Close()) })
		require.NoError(t, conns[i].(*net.TCPConn).SetReadBuffer(4096))
		_, err = io.WriteString(conns[i], "GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: "+cookie+"\r\n\r\n")
		require.NoError(t, err)
	}
	before := heap()
	for round := range rounds {
		fill(round)
	}
	// Kept as messages, this would be 100 MB for each client: 1 GB. A message that is just written
	// to each is some MB.
	assert.Less(t, heap()-before, int64(100<<20))
	for range clients { // each place is free again
		require.Eventually(t, func() bool { return status(t, address, cookie, false) == http.StatusOK }, patience, 10*time.Millisecond)
	}
}

// heap returns the allocated bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
