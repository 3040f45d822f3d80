package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// ready is the line for --ready-line of the agent.
	ready = "ready"
	// idlePeriod is how often a worker without messages looks for new ones.
	idlePeriod = 100 * time.Millisecond
	// requestTimeout bounds a request.
	requestTimeout = 10 * time.Second
)

// work works on the partition of a vreplica until ctx ends. It is ready once the queue has accepted
// its epoch. With any error it ends, and the agent starts it again.
//
// If ctx ends, it waits for the answer to its last request, as long as the agent lets it: the next
// owner begins when this one has ended, and the queue could serve the request after that.
func work(ctx context.Context, c *client, took time.Duration, stdout io.Writer) error {
	// The queue serves one kind in one namespace. Elsewhere, both belong to the key of the epochs.
	name, index, epoch := os.Getenv("PLACEMENT_NAME"), os.Getenv("PLACEMENT_INDEX"), os.Getenv("PLACEMENT_EPOCH")
	path := "/queues/" + url.PathEscape(name) + "/" + index
	owner := "?" + url.Values{"epoch": {epoch}, "worker": {fmt.Sprintf("%s/%d", os.Getenv("POD_NAME"), os.Getpid())}}.Encode()
	requests, isReady := context.WithoutCancel(ctx), false
	for ctx.Err() == nil {
		answer, err := c.do(requests, http.MethodGet, path+owner, nil)
		if err != nil {
			return err
		}
		if !isReady {
			isReady = true
			_, _ = fmt.Fprintf(stdout, "working on partition %s of %s with epoch %s\n%s\n", index, name, epoch, ready)
		}
		if len(answer) == 0 {
			pause(ctx, idlePeriod)
			continue
		}
		var message record
		if err := json.Unmarshal(answer, &message); err != nil {
			return fmt.Errorf("reading a message: %w", err)
		}
		// A real worker does something with the message here. The queue gives it to the next owner if
		// this one ends before it is done.
		if !pause(ctx, took) {
			return nil
		}
		if _, err := c.do(requests, http.MethodPut, path+"/"+strconv.Itoa(message.Offset)+owner, nil); err != nil {
			return err
		}
	}
	return nil
}

// add adds messages to the partitions of a queue in turn.
func add(ctx context.Context, c *client, queue string, partitions, count int) error {
	if queue == "" || partitions < 1 {
		return errors.New("give the name of the queue, and --partitions")
	}
	messages := make([]bytes.Buffer, partitions)
	for i := range count {
		_, _ = fmt.Fprintln(&messages[i%partitions], "message", i) // into memory
	}
	for i := range messages {
		if _, err := c.do(ctx, http.MethodPost, fmt.Sprintf("/queues/%s/%d", url.PathEscape(queue), i), &messages[i]); err != nil {
			return err
		}
	}
	return nil
}

// client sends requests to a queue.
type client struct{ url string }

// do returns the body of a successful answer.
func (c *client) do(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.url, "/")+path, body)
	if err != nil {
		return nil, fmt.Errorf("calling the queue: %w", err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("calling the queue: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of the queue: %w", err)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("the queue refuses this: %s", strings.TrimSpace(string(text)))
	}
	return text, nil
}
