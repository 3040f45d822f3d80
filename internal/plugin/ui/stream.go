package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// chunk bounds the entries of one event, and so the memory of a stream.
const chunk = 500

// The events of a stream. Each has the position in the journal as its id.
const (
	// eventReset has no entries: the client discards its state, and all entries follow.
	eventReset = "reset"
	// eventChanges is an array of [Change], with the last states of entries.
	eventChanges = "changes"
	// eventReady follows all initial entries.
	eventReady = "ready"
	// eventBeat is a heartbeat with the time of the cluster.
	eventBeat = "beat"
)

// errSessionEnded ends the stream of a session that has expired by the wall clock, as timers do not
// run while a machine sleeps, or that newer sessions have replaced.
var errSessionEnded = errors.New("the session has ended")

// streamWriter writes one stream.
type streamWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// write writes an event. It drops a client that does not read it in time, which then reconnects and
// restarts.
func (s *streamWriter) write(event string, at Position, data any) error {
	encoded, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encoding event %s: %w", event, err)
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("limiting the time of a write: %w", err)
	}
	if _, err := fmt.Fprintf(s.w, "event: %s\nid: %d\ndata: %s\n\n", event, at.at, encoded); err != nil {
		return fmt.Errorf("writing event %s: %w", event, err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("sending event %s: %w", event, err)
	}
	return nil
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // a response to HEAD would never end
		refuse(w, http.StatusMethodNotAllowed, "Read this as a stream.")
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		refuse(w, http.StatusServiceUnavailable, "Too many pages are open.")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := &streamWriter{w: w, control: http.NewResponseController(w), timeout: s.config.WriteTimeout}
	ctx, cancel := context.WithDeadline(r.Context(), s.sessions.end(r))
	defer cancel()
	_ = s.follow(ctx, out, func() bool { return s.sessions.admits(r) }) // the client is gone, reconnects, or has lost its session
}

// follow writes all entries of the journal, and then changes, until ctx ends, the client stops
// reading, or its session ends. A client that reads slowly gets only the last state of each entry.
func (s *Server) follow(ctx context.Context, out *streamWriter, isAdmitted func() bool) error {
	var at Position
	isReady := false
	if err := out.write(eventReset, at, nil); err != nil {
		return err
	}
	for {
		changes, next, more, expired := s.config.Journal.After(at, chunk)
		if expired {
			at, isReady = Position{}, false
			if err := out.write(eventReset, at, nil); err != nil {
				return err
			}
			continue
		}
		at = next
		if len(changes) > 0 {
			if err := out.write(eventChanges, at, changes); err != nil {
				return err
			}
		}
		if more {
			continue
		}
		if !isReady {
			isReady = true
			if err := out.write(eventReady, at, s.now()); err != nil {
				return err
			}
		}
		if err := s.pause(ctx, out, at, isAdmitted); err != nil {
			return err
		}
	}
}

// pause waits for a change, and then for Config.BatchPeriod to collect further changes. Meanwhile
// it keeps the stream alive.
func (s *Server) pause(ctx context.Context, out *streamWriter, at Position, isAdmitted func() bool) error {
	for {
		waitCtx, cancel := context.WithTimeout(ctx, s.config.Heartbeat)
		err := s.config.Journal.Wait(waitCtx, at)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx) //nolint:wrapcheck // the caller's own error
		}
		if !isAdmitted() {
			return errSessionEnded
		}
		if err == nil {
			break
		}
		if err := out.write(eventBeat, at, s.now()); err != nil {
			return err
		}
	}
	select {
	case <-time.After(s.config.BatchPeriod):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx) //nolint:wrapcheck // the caller's own error
	}
}

// now returns the time of the cluster, from which the page computes ages.
func (s *Server) now() any {
	now := time.Now()
	if s.config.Clock != nil {
		now = s.config.Clock(now)
	}
	return map[string]any{"now": now.UnixMilli()}
}
