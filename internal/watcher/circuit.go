package watcher

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxFailing is how many nodes may fail in a row before the circuit opens.
	maxFailing = 16
	// probes is how many nodes are retried at a time while the circuit is open. It is more than
	// one, because a node may fail for a reason of its own.
	probes = 4
)

// circuit limits the requests of all nodes while the API server rejects all writes, because of a
// quota or missing permissions. While it is open, only a few nodes retry, at growing intervals; the
// first success closes it. The zero value is closed. It is safe for concurrent use.
type circuit struct {
	mu      sync.Mutex
	failing map[string]bool // since the last success
	parked  map[string]bool // nodes that wait until the circuit closes or Probe returns them
	wait    time.Duration
	longest time.Duration // upper bound of wait; zero: maxBackoff
	next    time.Time     // when the next nodes may try
	left    int           // how many more may try before that
}

// Enter reports whether a node may try now. If not, Close, Settle or Probe returns it later.
func (c *circuit) Enter(node string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open() {
		return true
	}
	if !now.Before(c.next) {
		c.next, c.left = now.Add(c.wait), probes
		c.wait = min(2*c.wait, cmp.Or(c.longest, maxBackoff))
	}
	if c.left > 0 {
		c.left--
		return true
	}
	c.park(node)
	return false
}

// Fail records a failure of a node. It reports whether the circuit is open; if it is, Close, Settle
// or Probe returns the node later.
func (c *circuit) Fail(node string, now time.Time) (open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failing == nil {
		c.failing = map[string]bool{}
	}
	before := c.open()
	c.failing[node] = true
	if c.open() && !before {
		c.wait, c.next, c.left = 2*minBackoff, now.Add(minBackoff), 0
	}
	if c.open() {
		c.park(node)
	}
	return c.open()
}

// Expedite shortens the retry interval, still for a few nodes at a time, because the process is
// about to end.
func (c *circuit) Expedite(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = 2 * minBackoff
	c.wait, c.next = c.longest, now
}

// Close records a success and returns the nodes that have waited for it.
func (c *circuit) Close() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failing) == 0 {
		return nil
	}
	c.failing = nil
	return c.unpark()
}

// Settle records that a node has nothing to write. If that closes the circuit, Settle returns the
// nodes that have waited for it.
func (c *circuit) Settle(node string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	wasOpen := c.open()
	delete(c.failing, node)
	delete(c.parked, node)
	if !wasOpen || c.open() {
		return nil
	}
	return c.unpark()
}

// Probe returns a few waiting nodes, chosen at random, if it is time for them to try.
func (c *circuit) Probe(now time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open() || now.Before(c.next) {
		return nil
	}
	var chosen []string
	for node := range c.parked { // in random order: a node that always fails does not block others
		if len(chosen) == probes {
			break
		}
		chosen = append(chosen, node)
		delete(c.parked, node)
	}
	return chosen
}

func (c *circuit) park(node string) {
	if c.parked == nil {
		c.parked = map[string]bool{}
	}
	c.parked[node] = true
}

func (c *circuit) unpark() []string {
	parked := slices.Collect(maps.Keys(c.parked))
	c.parked = nil
	return parked
}

func (c *circuit) open() bool { return len(c.failing) >= maxFailing }
