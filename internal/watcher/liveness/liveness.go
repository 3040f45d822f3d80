// Package liveness distinguishes a loop that hangs from one that is idle, or whose work fails.
//
// A [Loop] tracks its workers. It hangs if one of them has worked on the same item for [Limit]
// without progress, or if nothing has passed through it for that time, not even the heartbeat of
// each [Period], an item without work. Work that fails and is retried is progress, so a loop never
// hangs because the API server is unavailable or because of one node.
package liveness

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// Limit is far longer than one step can take: a few requests, each of which an API server that
	// responds ends within a minute (its --request-timeout). client-go closes a dead connection
	// after 45 seconds.
	Limit = 5 * time.Minute

	// Period is the time between two heartbeats.
	Period = 10 * time.Second
)

// Loop is one loop with any number of workers. The zero value is ready to use. It is safe for
// concurrent use.
type Loop struct {
	mu sync.Mutex
	// movedAt is when something last passed through the loop; zero before the first heartbeat.
	movedAt time.Time
	// underWay is when the items in progress last advanced.
	underWay map[string]time.Time
}

// Begin records that a worker starts an item, which no other works on; end records that it is done.
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

// Progress records that the work on an item advances.
func (l *Loop) Progress(item string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.underWay[item]; ok {
		l.underWay[item] = time.Now()
	}
	l.movedLocked()
}

// Beat records a heartbeat. From the first one on, the loop must move.
func (l *Loop) Beat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.movedAt = time.Now()
}

func (l *Loop) movedLocked() {
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
