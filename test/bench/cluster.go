package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

// The namespaces that nodekeeper's programs use by default.
const (
	transactionNamespace = "node-metadata-transactions"
	metadataNamespace    = "node-metadata"
)

const (
	// readyTimeout is for all programs together, on a machine that may be busy.
	readyTimeout = time.Minute
	// stopTimeout is longer than the five seconds in which the programs are to end.
	stopTimeout = 10 * time.Second
)

// cluster is a control plane of its own with nodekeeper's programs in it.
type cluster struct {
	plane *controlplane.ControlPlane
	api   client.WithWatch // reads and writes the API server itself
	see   *observer

	// kubeconfig is the way of the programs to the API server.
	kubeconfig string
	programs   []*programs.Program
	// started counts the programs by name: each has an identity of its own.
	started map[string]int
	// isMaimed says that a program was killed, whose locks may stay for minutes.
	isMaimed bool

	profiles profiles
	// profiled are the addresses of the profiles of programs, by identity.
	profiled map[string]string
	// fleet are the nodes that there are to be, by name.
	fleet map[string]*member
}

// openCluster starts a control plane in which nothing runs yet. The caller owes it a close.
func openCluster(ctx context.Context) (*cluster, error) {
	plane, err := controlplane.Start(controlplane.Options{APIServerArgs: map[string][]string{
		// It renews a Lease of its own otherwise, which would be counted.
		"feature-gates": {"APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false"},
	}})
	if err != nil {
		return nil, err
	}
	c := &cluster{
		plane: plane, kubeconfig: plane.Kubeconfig, started: map[string]int{},
		fleet: map[string]*member{}, profiled: map[string]string{},
	}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) open(ctx context.Context) error {
	cfg := rest.CopyConfig(c.plane.Config)
	cfg.WarningHandler = rest.NoWarnings{}
	var err error
	if c.api, err = client.NewWithWatch(cfg, client.Options{}); err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	for _, name := range []string{transactionNamespace, metadataNamespace} {
		if err := c.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	c.see, err = observe(ctx, c.api)
	return err
}

// start starts so many of a program, with more arguments perhaps.
func (c *cluster) start(program string, count int, args ...string) error {
	for range count {
		c.started[program]++
		identity := fmt.Sprintf("%s-%d", program, c.started[program])
		with := args
		if c.started[program] == 1 {
			tell, url, err := c.profiles.args()
			if err != nil {
				return err
			}
			if with = slices.Concat(args, tell); url != "" {
				c.profiled[identity] = url
			}
		}
		p, err := programs.Start(program, identity, c.kubeconfig, with...)
		if err != nil {
			return err
		}
		c.programs = append(c.programs, p)
	}
	return nil
}

// replace kills programs (SIGKILL) and starts as many new ones with other identities.
func (c *cluster) replace(victims ...*programs.Program) error {
	c.isMaimed = true
	for _, p := range victims {
		if err := p.Kill(); err != nil {
			return err
		}
	}
	c.programs = slices.DeleteFunc(c.programs, func(p *programs.Program) bool { return slices.Contains(victims, p) })
	for _, p := range victims {
		if err := c.start(p.Name, 1); err != nil {
			return err
		}
	}
	return nil
}

// awaitReady returns when every program is ready.
func (c *cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, p := range c.programs {
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything that runs and waits for it.
func (c *cluster) close() error {
	err := programs.StopAll(c.programs, stopTimeout)
	if c.see != nil {
		c.see.stop()
	}
	return errors.Join(err, c.plane.Stop())
}
