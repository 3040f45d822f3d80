package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// fleet is how many nodes the cluster has.
	fleet = 60
	// pace is the time from one node to the next.
	pace = 100 * time.Millisecond
	// absence is how long each node is away.
	absence = 2 * time.Second
)

// each does something with the first nodes of the fleet, one after the other at the pace, and
// returns when all is done.
func (c *Cluster) each(ctx context.Context, count int, do func(ctx context.Context, i int) error) error {
	return each(ctx, pace, count, do)
}

// each does something many times, one after the other at a pace, and returns when all is done.
func each(ctx context.Context, pace time.Duration, count int, do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range count {
		all.Go(func() error { return do(ctx, i) })
		select {
		case <-ctx.Done():
			return all.Wait()
		case <-tick.C:
		}
	}
	return all.Wait()
}

// join creates a node that is new to the cluster, which a user labels.
func (c *Cluster) join(ctx context.Context, i int) error {
	if err := c.register(ctx, i); err != nil {
		return err
	}
	return c.label(ctx, i, map[string]string{"example.com/rack": "r" + strconv.Itoa(i/10), "example.com/team": "blue", "disk": "ssd"})
}

// comeBack deletes a node and creates it again.
func (c *Cluster) comeBack(ctx context.Context, i int) error {
	if err := c.api.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}); err != nil {
		return fmt.Errorf("deleting node %s: %w", name(i), err)
	}
	if err := pause(ctx, absence); err != nil {
		return err
	}
	return c.register(ctx, i)
}

// repaint changes a label of a node.
func (c *Cluster) repaint(ctx context.Context, i int) error {
	return c.label(ctx, i, map[string]string{"example.com/team": "green"})
}

// register creates a node as its kubelet does: without the labels that a user gives it.
func (c *Cluster) register(ctx context.Context, i int) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: map[string]string{
		"kubernetes.io/hostname": name(i), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
	}}}
	if err := c.api.Create(ctx, n, client.FieldOwner("kubelet")); err != nil {
		return fmt.Errorf("creating node %s: %w", name(i), err)
	}
	return nil
}

// label sets labels of a node as a user does.
func (c *Cluster) label(ctx context.Context, i int, labels map[string]string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return fmt.Errorf("encoding the labels of node %s: %w", name(i), err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}
	if err := c.api.Patch(ctx, n, client.RawPatch(types.MergePatchType, body), client.FieldOwner("kubectl-label")); err != nil {
		return fmt.Errorf("labelling node %s: %w", name(i), err)
	}
	return nil
}

func name(i int) string { return fmt.Sprintf("node-%02d", i+1) }

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
