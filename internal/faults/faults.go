package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Outage is an API server that cannot be reached.
type Outage struct{ Calls }

// Do refuses the connection.
func (o *Outage) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	if !o.hit(call) {
		return next(ctx)
	}
	return fmt.Errorf("injected outage: %w", syscall.ECONNREFUSED)
}

// LostAnswer is a connection that breaks after the API server has done what it was asked.
type LostAnswer struct{ Calls }

// Do makes the call and hides that it succeeded.
func (l *LostAnswer) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	if !l.hit(call) {
		return next(ctx)
	}
	if err := next(ctx); err != nil {
		return err
	}
	return fmt.Errorf("injected loss of an answer: %w", io.ErrUnexpectedEOF)
}

// Conflict is another writer who always comes first.
type Conflict struct{ Calls }

// Do answers 409 Conflict; nothing is written.
func (c *Conflict) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	if !c.hit(call) {
		return next(ctx)
	}
	return apierrors.NewConflict(schema.GroupResource{Resource: call.Kind}, call.Name, errors.New("injected conflict"))
}

// Slow is an API server, or a network, that takes its time.
type Slow struct {
	Calls
	Delay time.Duration
}

// Do makes the call after the delay, if the caller waits for so long.
func (s *Slow) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	if !s.hit(call) {
		return next(ctx)
	}
	timer := time.NewTimer(s.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return next(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Race is something else that happens just before a call gets to the API server.
type Race struct {
	Calls
	// First is what happens. It is not to make calls that the Race hits.
	First func(ctx context.Context)
}

// Do lets the other thing happen, then makes the call.
func (r *Race) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	if r.hit(call) {
		r.First(ctx)
	}
	return next(ctx)
}

// Log is no fault: it keeps what is called and answered.
type Log struct {
	Calls

	mu      sync.Mutex
	entries []Entry
}

// Entry is one call and its answer.
type Entry struct {
	Call
	Err error
}

// Do makes the call and keeps its answer.
func (l *Log) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	err := next(ctx)
	if l.hit(call) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.entries = append(l.entries, Entry{call, err})
	}
	return err
}

// Entries returns the calls so far, in the order of their answers.
func (l *Log) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Entry(nil), l.entries...)
}

var _ = []Fault{(*Outage)(nil), (*LostAnswer)(nil), (*Conflict)(nil), (*Slow)(nil), (*Race)(nil), (*Log)(nil)}
