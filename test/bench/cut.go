package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"nodekeeper.dev/test/faultproxy"
)

// cut measures deleting and recreating nodes while all watches of all programs repeatedly end, as
// the API server ends watches that fall behind. It uses its own control plane, and one proxy for
// all programs.
func cut(ctx context.Context, r *report, nodes, replicas int, period time.Duration) (err error) {
	r.heading("%d nodes are deleted and come back, %d of each program, and all watches are cut every %s", nodes, replicas, period)
	c, err := openCluster(ctx, setup{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	way, err := c.divert() //nolint:contextcheck // a proxy lives until it is closed
	if err != nil {
		return err
	}
	defer way.Close()
	if err := c.populate(ctx, nodes, replicas, replicas); err != nil {
		return err
	}
	scissors := repeat(ctx, period, func() (int, error) { return way.EndWatches(), nil })
	m, err := c.cycle(ctx, c.members(), "cut")
	cuts, cutErr := scissors()
	if err := errors.Join(err, cutErr); err != nil {
		return err
	}
	r.scene = scene{name: "cut", nodes: nodes, replicas: replicas}
	r.add("watches cut", "", float64(cuts))
	r.add("with cut watches, all restored and drained", "s", m.took.Seconds())
	r.addMeasured(m)
	return nil
}

// divert makes programs that start from now on use a proxy. The caller must close the proxy.
func (c *cluster) divert() (*faultproxy.Proxy, error) {
	way, err := faultproxy.Start(c.plane.Config)
	if err != nil {
		return nil, err
	}
	c.kubeconfig = filepath.Join(c.plane.Dir, "kubeconfig-proxy")
	if err := clientcmd.WriteToFile(way.Kubeconfig(), c.kubeconfig); err != nil {
		way.Close()
		return nil, fmt.Errorf("writing the kubeconfig of the proxy: %w", err)
	}
	return way, nil
}

// populate creates a fleet with a record of each node, and starts programs, which find nothing to
// do.
func (c *cluster) populate(ctx context.Context, nodes, watchers, processors int) error {
	if err := c.recruit(ctx, nodes); err != nil {
		return err
	}
	if err := newBareClient(c, 1).found(ctx); err != nil {
		return err
	}
	return c.startSome(ctx, watchers, processors)
}

// repeat calls do once per period, until the returned function is called, which returns the sum of
// the results.
func repeat(ctx context.Context, period time.Duration, do func() (int, error)) (end func() (int, error)) {
	ctx, cancel := context.WithCancel(ctx)
	sum, beside := 0, errgroup.Group{}
	beside.Go(func() error {
		for pause(ctx, period) == nil {
			n, err := do()
			sum += n
			if err != nil {
				return err
			}
		}
		return nil
	})
	return func() (int, error) {
		cancel()
		err := beside.Wait()
		return sum, err
	}
}
