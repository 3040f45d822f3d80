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

// Outage simulates an unreachable API server.
type Outage struct{ Calls }

// Do refuses the connection.
func (o *Outage) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	if !o.hit(call) {
		return next(ctx)
	}
	return fmt.Errorf("injected outage: %w", syscall.ECONNREFUSED)
}

// LostAnswer simulates a connection that breaks after the API server has handled the request.
type LostAnswer struct{ Calls }

// Do makes the call and returns an error although it succeeded.
func (l *LostAnswer) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	if !l.hit(call) {
		return next(ctx)
	}
	if err := next(ctx); err != nil {
		return err
	}
	return fmt.Errorf("injected loss of a response: %w", io.ErrUnexpectedEOF)
}

// Conflict simulates another writer that always writes first.
type Conflict struct{ Calls }

// Do returns 409 Conflict and writes nothing.
func (c *Conflict) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	if !c.hit(call) {
		return next(ctx)
	}
	return apierrors.NewConflict(schema.GroupResource{Resource: call.Kind}, call.Name, errors.New("injected conflict"))
}

// MissingRight simulates the rights of a user that do not include a call.
type MissingRight struct{ Calls }

// Do returns 403 Forbidden as RBAC does.
func (m *MissingRight) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	if !m.hit(call) {
		return next(ctx)
	}
	missing := fmt.Errorf("User %q cannot %s resource %q in API group %q at the cluster scope", "injected", call.Verb, call.Kind, "") //nolint:staticcheck // as the API server has it
	return apierrors.NewForbidden(schema.GroupResource{Resource: call.Kind}, call.Name, missing)
}

// Slow simulates a slow API server or network.
type Slow struct {
	Calls
	Delay time.Duration
}

// Do makes the call after the delay. It returns the error of ctx if that is done first.
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

// Race runs a function just before a call reaches the API server.
type Race struct {
	Calls
	// First runs before the call. It must not make calls that the Race hits.
	First func(ctx context.Context)
}

// Do runs First, then makes the call.
func (r *Race) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	if r.hit(call) {
		r.First(ctx)
	}
	return next(ctx)
}

// Log injects no fault: it records calls and their results.
type Log struct {
	Calls

	mu      sync.Mutex
	entries []Entry
}

// Entry is one call and its result.
type Entry struct {
	Call
	Err error
}

// Do makes the call and records its result.
func (l *Log) Do(ctx context.Context, call Call, next func(context.Context) error) error {
	err := next(ctx)
	if l.hit(call) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.entries = append(l.entries, Entry{call, err})
	}
	return err
}

// Entries returns the calls so far, in the order of their results.
func (l *Log) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Entry(nil), l.entries...)
}

var _ = []Fault{(*Outage)(nil), (*LostAnswer)(nil), (*Conflict)(nil), (*Slow)(nil), (*Race)(nil), (*Log)(nil)}
