package controlplane

import (
	"errors"
	"sync"
)

// Pool lends control planes, each to one test at a time. It starts one when none is free, so there are as many as tests
// run in parallel. The zero value is ready to use, and safe for concurrent use.
type Pool struct {
	// New starts a control plane; nil: one of no options.
	New func() (*ControlPlane, error)

	mu        sync.Mutex
	free, all []*ControlPlane
}

// Take returns a control plane for the caller's exclusive use until it is given back.
func (p *Pool) Take() (*ControlPlane, error) {
	if c := p.takeFree(); c != nil {
		return c, nil
	}
	c, err := p.start() // without the lock: others take and give meanwhile
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, c)
	return c, nil
}

// takeFree returns nil if no control plane is free.
func (p *Pool) takeFree() *ControlPlane {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	if last < 0 {
		return nil
	}
	c := p.free[last]
	p.free = p.free[:last]
	return c
}

func (p *Pool) start() (*ControlPlane, error) {
	if p.New == nil {
		return Start(Options{})
	}
	return p.New()
}

// Give returns a control plane to the pool. The next test gets it as it is, unless it no longer
// serves because a test has failed halfway.
func (p *Pool) Give(c *ControlPlane) {
	if !c.serves() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, c)
}

// Stop stops every control plane that the pool has started.
func (p *Pool) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.all {
		errs = append(errs, c.Stop())
	}
	p.all, p.free = nil, nil
	return errors.Join(errs...)
}
