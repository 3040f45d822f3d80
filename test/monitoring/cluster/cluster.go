// Package cluster is a control plane with nodekeeper's built programs in it, and nodes that go and
// come back, for the picture of the dashboard.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/monitoring/monitor"
	"nodekeeper.dev/test/ports"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/webhooks"
)

const (
	// readyTimeout is for one program, on a machine that may be busy.
	readyTimeout = time.Minute
	// stopTimeout is longer than the five seconds in which the programs must end.
	stopTimeout = 10 * time.Second
)

// Cluster is the control plane and the programs.
type Cluster struct {
	plane *controlplane.ControlPlane
	api   client.Client

	mu sync.Mutex
	// scraper follows the programs that run.
	scraper *monitor.Scraper
	running []program
	// started counts the programs by name: each has an identity of its own.
	started map[string]int
}

type program struct {
	*programs.Program

	metrics string // address
}

// Start starts a control plane. The scraper scrapes the programs that will run there. The caller
// owes it a Close.
func Start(scraper *monitor.Scraper) (*Cluster, error) {
	plane, err := controlplane.Start(controlplane.Options{})
	if err != nil {
		return nil, err
	}
	c := &Cluster{plane: plane, scraper: scraper, started: map[string]int{}}
	cfg := rest.CopyConfig(plane.Config)
	cfg.WarningHandler = rest.NoWarnings{}
	if c.api, err = client.New(cfg, client.Options{}); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to the API server: %w", err), plane.Stop())
	}
	return c, nil
}

// run starts programs, with more arguments perhaps, and returns when they are ready. They are
// scraped from the start.
func (c *Cluster) run(ctx context.Context, args []string, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begun := make([]program, 0, len(names))
	for _, name := range names {
		p, err := c.start(name, args)
		if err != nil {
			return err
		}
		begun = append(begun, p)
	}
	for _, p := range begun {
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start starts a program.
func (c *Cluster) start(name string, args []string) (program, error) {
	address, err := ports.Address()
	if err != nil {
		return program{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started[name]++
	identity := fmt.Sprintf("%s-%d", name, c.started[name])
	p, err := programs.Start(name, identity, c.plane.Kubeconfig, append([]string{"--metrics-bind-address=" + address}, args...)...)
	if err != nil {
		return program{}, err
	}
	one := program{Program: p, metrics: address}
	c.running = append(c.running, one)
	c.updateScraperLocked()
	return one, nil
}

// runWebhook starts a webhook, which the API server asks from now on.
func (c *Cluster) runWebhook(ctx context.Context) error {
	site := webhooks.Site{Namespace: "nodekeeper-system", Name: "nodekeeper"}
	if err := site.Install(ctx, c.api); err != nil {
		return err
	}
	return c.run(ctx, site.Flags(), "webhook")
}

// kill ends a program as kill -9 does. Its pod is gone then.
func (c *Cluster) kill(identity string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.running, func(p program) bool { return p.Identity == identity })
	if i < 0 {
		return fmt.Errorf("killing %s: it does not run", identity)
	}
	if err := c.running[i].Kill(); err != nil {
		return err
	}
	c.running = slices.Delete(c.running, i, i+1)
	c.updateScraperLocked()
	return nil
}

// updateScraperLocked gives the scraper the programs that run.
func (c *Cluster) updateScraperLocked() {
	targets := make([]monitor.Target, 0, len(c.running))
	for _, p := range c.running {
		targets = append(targets, monitor.Target{Program: p.Name, Pod: p.Identity, Address: p.metrics})
	}
	c.scraper.Follow(targets)
}

// Close ends everything that runs and waits for it.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*programs.Program, 0, len(c.running))
	for _, p := range c.running {
		all = append(all, p.Program)
	}
	return errors.Join(programs.StopAll(all, stopTimeout), c.plane.Stop())
}
