package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"nodekeeper.dev/internal/daemon/connect"
	"nodekeeper.dev/placement/agent"
	"nodekeeper.dev/placement/contract"
)

// pod is a pod with an agent in this process.
type pod struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{} // closed when the agent has returned

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

// errCut is the error of a connection of a pod that is cut off.
var errCut = errors.New("cut off")

// start starts an agent in a new pod.
func (b *bench) start(ctx context.Context, number int) (*pod, error) {
	cfg, err := connect.Config("placement-agent", b.plane.Kubeconfig)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &pod{name: fmt.Sprintf("%s-%d", set, number), cancel: cancel, done: make(chan struct{})}
	cfg.Dial = p.dial // so that it does not share the connection of another agent
	o := agent.Options{Namespace: namespace, Pool: pool, Pod: p.name, PodUID: uuid.NewUUID()}
	go func() {
		defer close(p.done)
		_ = agent.Run(ctx, cfg, o, worker{p.name, b.clock}) // of an agent that is cut off, it is an error
	}()
	return p, nil
}

func (p *pod) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isCut {
		return nil, errors.Join(errCut, conn.Close())
	}
	p.conns = append(p.conns, conn)
	return conn, nil
}

// cut ends all connections of a pod for good.
func (p *pod) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for _, c := range p.conns {
		_ = c.Close() // the API server may have closed it
	}
}

// worker works on the virtual replicas of a pod, and does nothing.
type worker struct {
	pod   string
	clock *clock
}

// Work implements agent.Worker.
func (w worker) Work(ctx context.Context, r agent.Replica, ready func()) error {
	u := contract.Unit{UID: r.Resource.UID, Index: r.Index}
	w.clock.start(u, w.pod)
	ready()
	<-ctx.Done()
	w.clock.stop(u)
	return nil
}

// clock measures how long the work on virtual replicas is interrupted. It is safe for concurrent
// use.
type clock struct {
	mu      sync.Mutex
	running map[contract.Unit]string   // the pod
	stopped map[contract.Unit]stoppage // what has worked before
	starts  int                        // since reset
	moves   map[string]int             // to pods, since reset
	longest time.Duration              // interruption that ended since reset
	latest  time.Time                  // when something has started or stopped
}

// stoppage is the end of the work on a virtual replica.
type stoppage struct {
	pod string
	at  time.Time
}

func newClock() *clock {
	return &clock{running: map[contract.Unit]string{}, stopped: map[contract.Unit]stoppage{}, moves: map[string]int{}}
}

func (c *clock) start(u contract.Unit, pod string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = time.Now()
	c.starts++
	c.running[u] = pod
	if s, ok := c.stopped[u]; ok {
		c.longest = max(c.longest, c.latest.Sub(s.at))
		if s.pod != pod {
			c.moves[pod]++
		}
		delete(c.stopped, u)
	}
}

func (c *clock) stop(u contract.Unit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = time.Now()
	c.stopped[u] = stoppage{c.running[u], c.latest}
	delete(c.running, u)
}

// reset begins a measurement.
func (c *clock) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts, c.moves, c.longest = 0, map[string]int{}, 0
	clear(c.stopped)
}

// started returns the number of starts, of moves, and the longest interruption since reset.
func (c *clock) started() (starts, moves int, longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.moves {
		moves += n
	}
	return c.starts, moves, c.longest
}

// works returns how many virtual replicas are worked on, by a pod or by all.
func (c *clock) works(pod string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pod == "" {
		return len(c.running)
	}
	for _, name := range c.running {
		if name == pod {
			n++
		}
	}
	return n
}

// worksOn returns how many indexes of a resource are worked on.
func (c *clock) worksOn(uid string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for u := range c.running {
		if string(u.UID) == uid {
			n++
		}
	}
	return n
}

func (c *clock) last() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// String describes what runs.
func (c *clock) String() string { return fmt.Sprintf("%d programs run", c.works("")) }
