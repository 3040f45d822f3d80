package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// chunk bounds the entries of one event, and so what a stream holds in memory.
const chunk = 500

// The events of a stream. Each has the position in the journal as its id.
const (
	// eventReset has no entries: the client forgets all it knows, and everything follows.
	eventReset = "reset"
	// eventChanges has entries in their last state, an array of [Change].
	eventChanges = "changes"
	// eventReady says that everything has come, and that only changes follow.
	eventReady = "ready"
	// eventBeat shows that the stream lives, and has the time of the cluster.
	eventBeat = "beat"
)

// errSessionEnded ends the stream of a session that is over: by the wall clock, as timers do not run
// while a machine sleeps, or as other sessions have taken its place.
var errSessionEnded = errors.New("the session has ended")

// streamWriter writes one stream.
type streamWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// write writes an event. A client that does not read it in time is dropped: it connects again and starts
// from the beginning.
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
	if r.Method != http.MethodGet { // the answer to HEAD would never end
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
	_ = s.follow(ctx, out, func() bool { return s.sessions.admits(r) }) // the client is gone, connects again, or may read no more
}

// follow writes everything that is in the journal, and then what changes, until ctx ends, the
// client does not read or is admitted no more. A client that reads slowly skips states: it gets the
// last one of each entry.
func (s *Server) follow(ctx context.Context, out *streamWriter, isAdmitted func() bool) error {
	var at Position
	isReady := false
	if err := out.write(eventReset, at, nil); err != nil {
		return err
	}
	for {
		changes, next, more, lost := s.config.Journal.After(at, chunk)
		if lost {
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

// pause returns when there is something new, and what comes with it had the time to come. Until then it
// keeps the stream alive.
func (s *Server) pause(ctx context.Context, out *streamWriter, at Position, isAdmitted func() bool) error {
	for {
		waitCtx, cancel := context.WithTimeout(ctx, s.config.Heartbeat)
		err := s.config.Journal.Wait(waitCtx, at)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx) //nolint:wrapcheck // it is the caller's
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
		return context.Cause(ctx) //nolint:wrapcheck // it is the caller's
	}
}

// now returns what time it is in the cluster, by which the page shows how old things are.
func (s *Server) now() any {
	now := time.Now()
	if s.config.Clock != nil {
		now = s.config.Clock(now)
	}
	return map[string]any{"now": now.UnixMilli()}
}
