package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

// kubeconfigEnv names the kubeconfig of a cluster that is there already.
const kubeconfigEnv = "E2E_KUBECONFIG"

// foreignKubeconfig returns the kubeconfig of the cluster that is to be used, "" if the tests are to start their own.
func foreignKubeconfig() string { return os.Getenv(kubeconfigEnv) }

// cluster is an API server that one test at a time has for itself.
type cluster struct {
	client     client.WithWatch
	kubeconfig string
	// plane is nil if the cluster is a foreign one.
	plane *controlplane.ControlPlane
}

// pool lends clusters. It starts one when none is free, so there are as many as tests run in parallel.
type pool struct {
	mu   sync.Mutex
	free []*cluster
	all  []*cluster
}

func (p *pool) take() (*cluster, error) {
	p.mu.Lock()
	if last := len(p.free) - 1; last >= 0 {
		c := p.free[last]
		p.free = p.free[:last]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()

	c, err := newCluster()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, c)
	return c, nil
}

func (p *pool) give(c *cluster) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, c)
}

// stop ends what was started.
func (p *pool) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.all {
		if c.plane != nil {
			errs = append(errs, c.plane.Stop())
		}
	}
	p.all, p.free = nil, nil
	return errors.Join(errs...)
}

func newCluster() (*cluster, error) {
	c := &cluster{}
	if path := foreignKubeconfig(); path != "" {
		c.kubeconfig = path
	} else {
		plane, err := controlplane.Start(controlplane.Options{})
		if err != nil {
			return nil, err
		}
		c.plane, c.kubeconfig = plane, plane.Kubeconfig
	}
	err := c.connect()
	if err != nil && c.plane != nil {
		err = errors.Join(err, c.plane.Stop())
	}
	return c, err
}

func (c *cluster) connect() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cfg.QPS = -1
	if c.client, err = client.NewWithWatch(cfg, client.Options{}); err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	return nil
}
