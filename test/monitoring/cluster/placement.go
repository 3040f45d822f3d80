package cluster

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/programs"
)

// poolName is the pool of agents in workNamespace, which have the Queues there as their work.
const poolName, workNamespace = "worker", "shop"

// placement returns the plot of placement.
func placement() Plot {
	return Plot{Name: "placement", end: 110 * time.Second, scenes: []scene{
		{0, "a controller starts, and then three agents", beginPlacement},
		{12 * time.Second, "a second controller starts", runPlacement},
		{20 * time.Second, "three Queues of 12 partitions are created", createQueues},
		{35 * time.Second, "agent-4 joins", func(_ context.Context, c *Cluster) error { return c.runAgents(1) }},
		{50 * time.Second, "agent-2 is killed", func(_ context.Context, c *Cluster) error { return c.kill("agent-2") }},
		{68 * time.Second, "agent-3 ends (SIGTERM)", func(_ context.Context, c *Cluster) error { return c.stop("agent-3") }},
		{80 * time.Second, "the leading controller is killed", func(_ context.Context, c *Cluster) error { return c.kill("placement-1") }},
	}}
}

// beginPlacement starts a controller and the first agents.
func beginPlacement(ctx context.Context, c *Cluster) error {
	if err := queues.Install(ctx, c.plane.Config); err != nil {
		return err
	}
	if err := c.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workNamespace}}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", workNamespace, err)
	}
	if err := runPlacement(ctx, c); err != nil {
		return err
	}
	return c.runAgents(3)
}

// runPlacement starts a controller, which may become the leader.
func runPlacement(ctx context.Context, c *Cluster) error {
	dir, err := os.MkdirTemp("", "placement")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	pools, err := queues.WritePools(dir, workNamespace, poolName, "")
	if err != nil {
		return err
	}
	p, err := c.start(workNamespace, "placement", func(identity, metrics string) (*programs.Program, error) {
		return programs.Launch([]string{"POD_NAME=" + identity}, "placement", identity, "controller", "--kubeconfig="+c.plane.Kubeconfig,
			"--pool-config="+pools, "--metrics-bind-address="+metrics, "--health-probe-bind-address=127.0.0.1:0")
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return p.WaitReady(ctx)
}

// runAgents starts more agents. They have no metrics.
func (c *Cluster) runAgents(count int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range count {
		c.started["agent"]++
		identity := fmt.Sprintf("agent-%d", c.started["agent"])
		p, err := programs.Launch(nil, "placement", identity, "agent", "--kubeconfig="+c.plane.Kubeconfig, "--namespace="+workNamespace, "--pool="+poolName,
			"--pod="+identity, "--pod-uid="+string(uuid.NewUUID()), "--lease-duration=5s", "--exec", "--", "sleep", "1000")
		if err != nil {
			return err
		}
		c.running = append(c.running, program{Program: p, namespace: workNamespace})
	}
	return nil
}

func createQueues(ctx context.Context, c *Cluster) error {
	for _, name := range []string{"orders", "mails", "clicks"} {
		if err := c.api.Create(ctx, queues.New(workNamespace, name, 12), client.FieldOwner("user")); err != nil {
			return fmt.Errorf("creating Queue %s: %w", name, err)
		}
	}
	return nil
}
