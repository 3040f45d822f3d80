// Package cluster is a control plane with the built programs of one of the products in it, and with
// what these work on, for the picture of its dashboard.
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
	// graceTimeout is the grace period of a pod by default.
	graceTimeout = 30 * time.Second
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

	// namespace is that of the pod for which it stands, and metrics is its address, or empty.
	namespace, metrics string
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

// run starts programs of a namespace, with more arguments perhaps, and returns when they are ready.
// They are scraped from the start.
func (c *Cluster) run(ctx context.Context, namespace string, args []string, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begun := make([]program, 0, len(names))
	for _, name := range names {
		p, err := c.start(namespace, name, func(identity, metrics string) (*programs.Program, error) {
			return programs.Start(name, identity, c.plane.Kubeconfig, append([]string{"--metrics-bind-address=" + metrics}, args...)...)
		})
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

// start starts a program, which gets an identity of its own and an address for its metrics.
func (c *Cluster) start(namespace, name string, launch func(identity, metrics string) (*programs.Program, error)) (program, error) {
	address, err := ports.Address()
	if err != nil {
		return program{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started[name]++
	identity := fmt.Sprintf("%s-%d", name, c.started[name])
	p, err := launch(identity, address)
	if err != nil {
		return program{}, err
	}
	one := program{Program: p, namespace: namespace, metrics: address}
	c.running = append(c.running, one)
	c.updateScraperLocked()
	return one, nil
}

// runWebhook starts a webhook, which the API server asks from now on.
func (c *Cluster) runWebhook(ctx context.Context) error {
	site := webhooks.Site{Namespace: keeperNamespace, Name: "nodekeeper"}
	if err := site.Install(ctx, c.api); err != nil {
		return err
	}
	return c.run(ctx, keeperNamespace, site.Flags(), "webhook")
}

// kill ends a program as kill -9 does. Its pod is gone then.
func (c *Cluster) kill(identity string) error { return c.end(identity, (*programs.Program).Kill) }

// stop ends a program as Kubernetes does, which takes the pod away when the program has ended.
func (c *Cluster) stop(identity string) error {
	return c.end(identity, func(p *programs.Program) error { return p.Stop(graceTimeout) })
}

// end ends a program, which is scraped meanwhile.
func (c *Cluster) end(identity string, by func(*programs.Program) error) error {
	is := func(p program) bool { return p.Identity == identity }
	c.mu.Lock()
	i := slices.IndexFunc(c.running, is)
	if i < 0 {
		c.mu.Unlock()
		return fmt.Errorf("ending %s: it does not run", identity)
	}
	p := c.running[i]
	c.mu.Unlock()
	if err := by(p.Program); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = slices.DeleteFunc(c.running, is)
	c.updateScraperLocked()
	return nil
}

// updateScraperLocked gives the scraper the programs that run.
func (c *Cluster) updateScraperLocked() {
	targets := make([]monitor.Target, 0, len(c.running))
	for _, p := range c.running {
		if p.metrics == "" {
			continue
		}
		targets = append(targets, monitor.Target{Program: p.Name, Namespace: p.namespace, Pod: p.Identity, Address: p.metrics})
	}
	c.scraper.Follow(targets)
}

// Close ends everything that runs and waits for it.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	all := make([]*programs.Program, 0, len(c.running))
	for _, p := range c.running {
		if p.namespace == shardNamespace { // the last shards would wait for others that take their objects
			errs = append(errs, p.Kill())
			continue
		}
		all = append(all, p.Program)
	}
	return errors.Join(errors.Join(errs...), programs.StopAll(all, stopTimeout), c.plane.Stop())
}
