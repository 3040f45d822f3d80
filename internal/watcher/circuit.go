package watcher

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxFailing is how many nodes may fail, without a success between, before the circuit opens.
	maxFailing = 16
	// probes is how many nodes are tried then at a time. It is more than one, as one node may have
	// a fault of its own.
	probes = 4
)

// circuit bounds the requests of all nodes while the API server refuses all writes, for a quota or
// a missing right. An open circuit lets a few nodes try, less and less often; the first success
// closes it. The zero value is closed. It is safe for concurrent use.
type circuit struct {
	mu      sync.Mutex
	failing map[string]bool // since the last success
	parked  map[string]bool // nodes that wait until the circuit is closed, or are chosen to try
	wait    time.Duration
	longest time.Duration // that wait gets; zero: maxBackoff
	next    time.Time     // when the next nodes may try
	left    int           // how many may still try before that
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

// Fail notes that a node failed. It reports whether the circuit is open; then Close, Settle or
// Probe returns the node later.
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

// Hurry makes nodes try often from now on, still a few at a time: the process is about to end.
func (c *circuit) Hurry(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = 2 * minBackoff
	c.wait, c.next = c.longest, now
}

// Close notes a success and returns the nodes that have waited for it.
func (c *circuit) Close() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failing) == 0 {
		return nil
	}
	c.failing = nil
	return c.unpark()
}

// Settle notes that a node has nothing to write. If the circuit was open and is closed by that,
// Settle returns the nodes that have waited for it.
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

// Probe returns a few of the nodes that wait, any of them, if it is time for them to try.
func (c *circuit) Probe(now time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open() || now.Before(c.next) {
		return nil
	}
	var chosen []string
	for node := range c.parked { // in no order: a node that always fails does not keep others from trying
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
