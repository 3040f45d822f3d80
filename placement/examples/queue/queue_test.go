package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCheckFindsEachFault: the events are "add MESSAGES", "added OFFSET", "own WORKER EPOCH",
// "refuse WORKER EPOCH HIGHEST" and "OFFSET WORKER EPOCH".
func TestCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	for events, want := range map[string]string{
		"add 3, 0 a 1, 1 a 1, own b 2, 2 b 2":      "",
		"add 2, 0 a 1":                             "", // the second is left
		"add 3, 0 a 1, 1 b 1, 2 c 2":               "", // the agent has started a again, as b
		"own a 1, own b 2, add 1, 0 b 2":           "",
		"add 3, 0 a 1, 2 a 1":                      "offset 1 is missing: offset 2 is done after offset 0",
		"add 2, 1 a 1":                             "offset 0 is missing: offset 1 is done after offset -1",
		"add 3, 0 a 1, 2 a 1, 1 a 1":               "offset 1 is done after offset 2",
		"add 2, 0 a 1, 1 a 1, 1 a 1":               "offset 1 is done after offset 1",
		"add 3, 0 a 1, 1 b 2, 2 a 1":               "epoch 1 of a is interleaved with epoch 2 of b, at offset 2",
		"own a 1, own b 2, own a 1":                "epoch 1 of a is interleaved with epoch 2 of b",
		"add 3, 0 a 1, 1 b 1, 2 a 1":               "a and b are interleaved, both with epoch 1, at offset 2",
		"add 4, 0 a 1, 1 b 1, 2 c 2, 3 b 1":        "epoch 1 of b is interleaved with epoch 2 of c, at offset 3",
		"add 1, 0 a 1, 1 a 1":                      "offset 1 is done, and was never added",
		"add 4, 0 a 1, 1 b 2, 2 b 2, 3 a 2":        "", // epochs differ: it is another owner
		"add 4, 0 a 1, 1 b 2, 2 a 2, 3 b 2":        "b and a are interleaved, both with epoch 2, at offset 3",
		"add 4, own b 2, 0 a 1, 1 a 1, 2 b 2":      "epoch 1 of a is interleaved with epoch 2 of b, at offset 0",
		"add 4, 0 a 1, 1 a 1, 2 a 1, 3 a 1, add 1": "",
		"own b 2, refuse a 1 2, add 1, 0 b 2":      "",
		"own a 1, refuse b 1 1":                    "epoch 1 of b is refused for epoch 1, and the owner, a, has epoch 1",
		"own a 1, refuse b 2 3":                    "epoch 2 of b is refused for epoch 3, and the owner, a, has epoch 1",
		"add 2, added 3":                           "offset 3 is added, and the next one is 2",
		"add 2, added 1":                           "offset 1 is added, and the next one is 2",
	} {
		err := show(io.Discard, check(parse(t, events)))
		if want == "" {
			require.NoError(t, err, events)
		} else {
			require.ErrorContains(t, err, "partition 3 of orders: "+want, events)
		}
	}
}

func parse(t *testing.T, events string) (all []record) {
	t.Helper()
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	messages := 0
	for event := range strings.SplitSeq(events, ", ") {
		r := record{Event: done, Queue: "orders", Partition: 3}
		switch f := strings.Fields(event); f[0] {
		case "add":
			for range number(f[1]) {
				all = append(all, record{Event: added, Queue: r.Queue, Partition: r.Partition, Offset: messages})
				messages++
			}
			continue
		case "added":
			r.Event, r.Offset = added, number(f[1])
		case "refuse":
			r.Event, r.Worker, r.Epoch, r.Highest = refused, f[1], int64(number(f[2])), int64(number(f[3]))
		case "own":
			r.Event, r.Worker, r.Epoch = owned, f[1], int64(number(f[2]))
		default:
			r.Offset, r.Worker, r.Epoch = number(f[0]), f[1], int64(number(f[2]))
		}
		all = append(all, r)
	}
	return all
}

// start serves the queue of a directory.
func start(t *testing.T, dir string) (*client, *server) {
	t.Helper()
	s, err := newServer(dir)
	require.NoError(t, err)
	h := httptest.NewServer(s.handler())
	t.Cleanup(func() {
		h.Close()
		_ = s.log.file.Close() // a test may have closed it
	})
	return &client{url: h.URL}, s
}

// ask sends a request of a worker for partition 0, and returns the answer.
func ask(t *testing.T, c *client, method, path, worker string, epoch int) (string, error) {
	t.Helper()
	answer, err := c.do(t.Context(), method, fmt.Sprintf("/queues/orders/0%s?worker=%s&epoch=%d", path, worker, epoch), nil)
	return string(answer), err
}

// TestLowerEpochsAreRefused: also after the queue was started again.
func TestLowerEpochsAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _ := start(t, dir)
	require.NoError(t, add(t.Context(), c, "orders", 2, 6))
	answer, err := ask(t, c, "GET", "", "a", 5)
	require.NoError(t, err)
	assert.JSONEq(t, `{"event":"","queue":"","partition":0,"offset":0,"message":"message 0"}`, answer)
	_, err = ask(t, c, "PUT", "/0", "a", 5)
	require.NoError(t, err)
	_, err = ask(t, c, "GET", "", "b", 7) // it owns the partition from now on
	require.NoError(t, err)

	for range 2 {
		for _, request := range [][2]string{{"GET", ""}, {"PUT", "/1"}} {
			_, err = ask(t, c, request[0], request[1], "a", 5)
			require.ErrorContains(t, err, "epoch 5 is lower than 7: another worker owns partition 0 of orders", request)
		}
		c, _ = start(t, dir)
	}
	answer, err = ask(t, c, "GET", "", "b", 7)
	require.NoError(t, err)
	assert.Contains(t, answer, `"offset":1,"message":"message 2"`)
	text, err := c.do(t.Context(), "GET", "/log", nil)
	require.NoError(t, err)
	assert.Equal(t, 4, strings.Count(string(text), `{"event":"refused","queue":"orders","partition":0,"offset":1,"epoch":5,"highest":7,"worker":"a"}`), "each refusal is in the log")
	var out bytes.Buffer
	require.NoError(t, awaitCheck(t.Context(), c, 0, &out))
	assert.Equal(t, []string{"orders", "0", "1", "2", "2", "4", "b"}, strings.Fields(strings.Split(out.String(), "\n")[1]))
}

// TestAnEmptyLogIsNoSuccess: otherwise a check passes if the messages went to another queue.
func TestAnEmptyLogIsNoSuccess(t *testing.T) {
	t.Parallel()
	c, _ := start(t, t.TempDir())
	for _, wait := range []time.Duration{0, time.Nanosecond} {
		require.ErrorContains(t, awaitCheck(t.Context(), c, wait, io.Discard), "no messages were added", wait)
	}
	waited := make(chan error, 1)
	go func() { waited <- awaitCheck(t.Context(), c, time.Minute, io.Discard) }()
	require.NoError(t, add(t.Context(), c, "orders", 1, 1))
	_, err := ask(t, c, "PUT", "/0", "a", 1)
	require.NoError(t, err)
	require.NoError(t, <-waited)
}

// TestWorkIsDoneOnceAndInOrder: an answer that was lost can be had again, and no message is left
// out.
func TestWorkIsDoneOnceAndInOrder(t *testing.T) {
	t.Parallel()
	c, _ := start(t, t.TempDir())
	require.NoError(t, add(t.Context(), c, "orders", 1, 2))
	_, err := ask(t, c, "PUT", "/1", "a", 5)
	require.ErrorContains(t, err, "offset 1 is not the next one, which is 0")
	for _, offset := range []string{"/0", "/0", "/1", "/1"} {
		_, err = ask(t, c, "PUT", offset, "a", 5)
		require.NoError(t, err, offset)
	}
	_, err = ask(t, c, "PUT", "/1", "b", 6)
	require.ErrorContains(t, err, "offset 1 is not the next one, which is 2")
	_, err = ask(t, c, "PUT", "/2", "b", 6)
	require.ErrorContains(t, err, "offset 2 is not the next one", "it was never added")
	answer, err := ask(t, c, "GET", "", "b", 6)
	require.NoError(t, err)
	assert.Empty(t, answer)
	var out bytes.Buffer
	require.NoError(t, awaitCheck(t.Context(), c, 0, &out))
	assert.Contains(t, out.String(), "orders   0           2      0      2        0         b\n2 messages are done")
}

// TestASlowClientHoldsUpNoOther: others are served while it sends its messages.
func TestASlowClientHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	c, _ := start(t, t.TempDir())
	body, slow := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := c.do(t.Context(), "POST", "/queues/orders/0", body)
		sent <- err
	}()
	const lines = 1 << 13 // more than the client buffers, so that the server has got the request
	_, err := io.WriteString(slow, strings.Repeat("a slow message\n", lines))
	require.NoError(t, err)
	answer, err := ask(t, c, "GET", "", "a", 1)
	require.NoError(t, err)
	assert.Empty(t, answer, "the messages are not complete")
	require.NoError(t, slow.Close())
	require.NoError(t, <-sent)
	answer, err = ask(t, c, "GET", "", "a", 1)
	require.NoError(t, err)
	assert.Contains(t, answer, "a slow message")
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	t.Parallel()
	c, _ := start(t, t.TempDir())
	for request, want := range map[string]string{
		"GET /queues/orders/-1?epoch=1":   "the partition must be a number",
		"GET /queues/orders/x?epoch=1":    "the partition must be a number",
		"GET /queues/orders/0":            "the epoch must be a number",
		"PUT /queues/orders/0/x?epoch=1":  "the offset must be a number",
		"PUT /queues/orders/0/0?epoch=1":  "offset 0 is not the next one",
		"PUT /queues/orders/0/-1?epoch=1": "offset -1 is not the next one",
		"PUT /queues/orders/0/0?epoch=-1": "epoch -1 is lower than 0",
	} {
		method, path, _ := strings.Cut(request, " ")
		_, err := c.do(t.Context(), method, path, nil)
		require.ErrorContains(t, err, want, request)
	}
	require.ErrorContains(t, add(t.Context(), c, "", 1, 1), "name of the queue")
}

// TestIncompleteRecordIsRemoved: the process was killed while it wrote. It had not answered.
func TestIncompleteRecordIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, s := start(t, dir)
	require.NoError(t, add(t.Context(), c, "orders", 1, 2))
	require.NoError(t, s.log.file.Close())
	_, err := ask(t, c, "PUT", "/0", "a", 1)
	require.ErrorContains(t, err, "writing the log", "without the log, nothing is done")
	require.ErrorContains(t, <-s.broken, "writing the log")
	path := filepath.Join(dir, "log")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	broken := append(bytes.Clone(content), `{"event":"done","queue":"orders"`...)
	require.NoError(t, os.WriteFile(path, broken, 0o600))

	// The disk works again: requests that have waited must not write over what is left of the record.
	s.mu.Lock()
	s.log.file, err = os.OpenFile(path, os.O_RDWR, 0o600)
	s.mu.Unlock()
	require.NoError(t, err)
	for _, request := range [][2]string{{"PUT", "/0"}, {"GET", ""}} {
		_, err = ask(t, c, request[0], request[1], "a", 1)
		require.ErrorContains(t, err, "writing the log", request)
	}
	require.ErrorContains(t, add(t.Context(), c, "orders", 1, 1), "writing the log")
	require.ErrorContains(t, awaitCheck(t.Context(), c, 0, io.Discard), "writing the log")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(broken), string(after))

	c, _ = start(t, dir)
	_, err = ask(t, c, "PUT", "/0", "a", 1)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(content, "garbage\n"...), 0o600))
	_, err = newServer(dir)
	require.ErrorContains(t, err, "reading record 3 of the log")
}

// TestWorkerEndsWhenItsPartitionIsTaken: it works on all messages, and then ends with the reason.
func TestWorkerEndsWhenItsPartitionIsTaken(t *testing.T) {
	c, _ := start(t, t.TempDir())
	t.Setenv("PLACEMENT_NAME", "orders")
	t.Setenv("PLACEMENT_INDEX", "0")
	t.Setenv("PLACEMENT_EPOCH", "5")
	require.NoError(t, add(t.Context(), c, "orders", 1, 20))
	var out bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- work(t.Context(), c, time.Millisecond, &out) }()
	require.NoError(t, awaitCheck(t.Context(), c, time.Minute, io.Discard))
	_, err := ask(t, c, "GET", "", "b", 6)
	require.NoError(t, err)
	require.ErrorContains(t, <-ended, "another worker owns partition 0")
	assert.Equal(t, "working on partition 0 of orders with epoch 5\nready\n", out.String())

	require.NoError(t, add(t.Context(), c, "orders", 1, 1))
	require.ErrorContains(t, awaitCheck(t.Context(), c, time.Nanosecond, io.Discard), "1 messages are not done")
	require.NoError(t, awaitCheck(t.Context(), c, 0, io.Discard))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, work(ctx, c, 0, io.Discard), "SIGTERM is no error")
}

// TestWorkerWaitsForItsLastAnswer: a worker that does not wait leaves a request, which the queue
// could serve, and refuse, after the next owner has begun.
func TestWorkerWaitsForItsLastAnswer(t *testing.T) {
	t.Parallel()
	arrived, isAnswered := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-isAnswered
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(slow.Close)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- work(ctx, &client{slow.URL}, 0, io.Discard) }()
	<-arrived
	cancel()
	select {
	case err := <-ended:
		assert.Fail(t, "it has returned before the answer", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(isAnswered)
	if !t.Failed() {
		require.NoError(t, <-ended)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"--help"}, &out, &out))
	assert.Equal(t, usage, out.String())
	require.ErrorContains(t, run(t.Context(), nil, &out, &out), "give a command")
	require.ErrorContains(t, run(t.Context(), []string{"eat"}, &out, &out), `unknown command "eat"`)
	require.ErrorContains(t, run(t.Context(), []string{"check", "--wait=x"}, &out, &out), "wait")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("SIGTERM"))
	require.NoError(t, run(ctx, []string{"serve", "--listen=127.0.0.1:0", "--dir=" + t.TempDir()}, &out, &out))
}
