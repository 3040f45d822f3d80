// Package liveness tells a loop that hangs from one that has nothing to do, or whose work fails.
//
// A [Loop] knows what its workers are at. It hangs if one of them has been at the same item for [Limit] without any progress; or
// if nothing has gone through it for that time, though it is given a beat each [Period]: an item that does nothing. Work
// that fails, and is tried again, is progress: no loop hangs because the API server is away, or because of one node.
package liveness

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// Limit is far longer than one step can take: a few requests, each of which an API server that answers ends within a minute
	// (its --request-timeout), and client-go gives up a connection that is dead after 45 seconds.
	Limit = 5 * time.Minute

	// Period is the time between two beats.
	Period = 10 * time.Second
)

// Loop is one loop with any number of workers. The zero value is one that has not begun. It is safe for concurrent use.
type Loop struct {
	mu       sync.Mutex
	hasBegun bool
	// movedAt is when something last went through the loop; zero before the first beat.
	movedAt time.Time
	// underWay says of the items that workers are at since when there has been no progress.
	underWay map[string]time.Time
}

// Begin notes that a worker takes up an item, which no other is at; end that it is done with it.
func (l *Loop) Begin(item string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underWay == nil {
		l.underWay = map[string]time.Time{}
	}
	l.underWay[item] = time.Now()
	l.movedLocked()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.underWay, item)
		l.movedLocked()
	}
}

// Progress notes that the work on an item, which takes long, goes on.
func (l *Loop) Progress(item string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.underWay[item]; ok {
		l.underWay[item] = time.Now()
	}
	l.movedLocked()
}

// Beat notes that a beat has gone through the loop. From the first one on the loop is to move.
func (l *Loop) Beat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hasBegun, l.movedAt = true, time.Now()
}

func (l *Loop) movedLocked() {
	l.hasBegun = true
	if !l.movedAt.IsZero() {
		l.movedAt = time.Now()
	}
}

// Live is a liveness check: it returns an error if the loop hangs.
func (l *Loop) Live(*http.Request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, item := range slices.Sorted(maps.Keys(l.underWay)) {
		if since := time.Since(l.underWay[item]); since > Limit {
			return fmt.Errorf("no progress with %s for %s", item, since.Round(time.Second))
		}
	}
	if since := time.Since(l.movedAt); !l.movedAt.IsZero() && since > Limit {
		return fmt.Errorf("nothing has moved for %s", since.Round(time.Second))
	}
	return nil
}

// Ready is a readiness check: it returns an error until the loop takes up work.
func (l *Loop) Ready(*http.Request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hasBegun {
		return errors.New("it does not run yet")
	}
	return nil
}
