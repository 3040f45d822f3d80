package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/test/programs"
)

// bulk deletes and recreates all nodes: first with the bare client, then with nodekeeper, on the
// same API server. It leaves the programs running, and returns the time that nodekeeper took.
func bulk(ctx context.Context, r *report, c *cluster, nodes, replicas int) (time.Duration, error) {
	if err := c.recruit(ctx, nodes); err != nil {
		return 0, err
	}
	r.heading("%d nodes are deleted and come back, %d of each program", nodes, replicas)
	bare, err := c.timeBare(ctx, replicas)
	if err != nil {
		return 0, fmt.Errorf("as the bare client: %w", err)
	}
	if err := c.startAll(ctx, replicas); err != nil {
		return 0, err
	}
	m, err := c.cycle(ctx, c.members(), fmt.Sprintf("bulk-%d", replicas))
	if err != nil {
		return 0, err
	}
	r.scene = scene{name: "bulk", nodes: nodes, replicas: replicas}
	r.add("nodekeeper, all restored and drained", "s", m.took.Seconds())
	r.add("bare client", "s", bare.Seconds())
	r.add("ratio", "", m.took.Seconds()/bare.Seconds())
	r.addMeasured(m)
	return m.took, nil
}

// cycle deletes and recreates nodes, and returns the measurement up to when all are restored and
// all queues are empty.
func (c *cluster) cycle(ctx context.Context, members []*member, name string) (*measured, error) {
	w, err := c.window(ctx)
	if err != nil {
		return nil, err
	}
	endProfiles := c.profiles.cpu(ctx, c, name)
	if err := c.each(ctx, members, c.delete); err != nil {
		return nil, err
	}
	if err := c.each(ctx, members, c.register); err != nil {
		return nil, err
	}
	last, err := c.see.awaitQuiet(ctx, uids(members))
	if err != nil {
		return nil, err
	}
	if err := endProfiles(); err != nil {
		return nil, err
	}
	m, err := w.end(ctx, len(members))
	if err != nil {
		return nil, err
	}
	m.took, m.latencies = last.Sub(w.began), c.see.latencies(uids(members))
	return m, c.check(ctx)
}

// timeBare measures the same with the bare client.
func (c *cluster) timeBare(ctx context.Context, replicas int) (time.Duration, error) {
	b := newBareClient(c, replicas)
	if err := b.found(ctx); err != nil {
		return 0, err
	}
	before, err := c.calls(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := b.cycle(ctx); err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, err := c.calls(ctx)
	if err != nil {
		return 0, err
	}
	// Check the yardstick itself.
	if per := after.since(before).per(float64(len(c.fleet))); per.writes() != 7 || per.reads() != 0 {
		return 0, fmt.Errorf("%v writes and %v reads for each node, not 7 and 0: %v", per.writes(), per.reads(), per)
	}
	return took, c.check(ctx)
}

// startAll starts that many replicas of each program and waits until they are idle.
func (c *cluster) startAll(ctx context.Context, replicas int) error {
	return c.startSome(ctx, replicas, replicas)
}

// startSome starts programs and waits until they are idle.
func (c *cluster) startSome(ctx context.Context, watchers, processors int) error {
	if err := errors.Join(c.start("watcher", watchers), c.start("processor", processors)); err != nil {
		return err
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	if c.site != nil {
		if err := c.startWebhooks(ctx); err != nil {
			return err
		}
	}
	_, err := c.see.awaitQuiet(ctx, nil)
	return err
}

// check returns an error unless every node and its record have the expected labels, and no
// transaction is left.
func (c *cluster) check(ctx context.Context) error {
	var queue, records corev1.ConfigMapList
	var nodes corev1.NodeList
	err := errors.Join(
		c.api.List(ctx, &queue, client.InNamespace(transactionNamespace)),
		c.api.List(ctx, &nodes),
		c.api.List(ctx, &records, client.InNamespace(metadataNamespace)),
	)
	if err != nil {
		return fmt.Errorf("checking what came of it: %w", err)
	}
	if len(queue.Items) > 0 || len(nodes.Items) != len(c.fleet) || len(records.Items) != len(c.fleet) {
		return fmt.Errorf("there are %d transactions, %d nodes and %d records, not 0, %d and %d",
			len(queue.Items), len(nodes.Items), len(records.Items), len(c.fleet), len(c.fleet))
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if own, marker := labels.Split(n.Labels); marker == "" || !maps.Equal(own, c.fleet[n.Name].labels) {
			return fmt.Errorf("node %s has %v and marker %q, not %v", n.Name, own, marker, c.fleet[n.Name].labels)
		}
	}
	return nil
}

// window is the time of a measurement.
type window struct {
	*cluster

	began  time.Time
	before served
	usages map[string]programs.Usage
}

// measured is the result of a window.
type measured struct {
	took time.Duration
	// latencies are the times from the creation of each node to its restore, sorted.
	latencies []time.Duration
	// creations are the durations of the requests that created the nodes, sorted.
	creations []time.Duration
	// answers are the answers of the webhook.
	answers answers
	// calls are per node, usages per process: the CPU time in the window, and the peak memory since
	// the process started.
	calls  calls
	usages map[string]programs.Usage
}

func (c *cluster) window(ctx context.Context) (*window, error) {
	before, err := c.served(ctx)
	if err != nil {
		return nil, err
	}
	c.created.take() // drop the durations before the window
	used, err := c.usages()
	return &window{cluster: c, before: before, usages: used, began: time.Now()}, err
}

// end ends the window once every lock is released, if that is possible: the requests that remove
// locks count.
func (w *window) end(ctx context.Context, nodes int) (*measured, error) {
	if !w.isMaimed {
		if err := w.awaitUnlocked(ctx); err != nil {
			return nil, err
		}
	}
	after, err := w.served(ctx)
	if err != nil {
		return nil, err
	}
	used, err := w.cluster.usages()
	if err != nil {
		return nil, err
	}
	for identity, u := range used {
		u.CPU -= w.usages[identity].CPU
		used[identity] = u
	}
	return &measured{
		creations: w.created.take(), answers: after.answers.since(w.before.answers), calls: after.calls.since(w.before.calls).per(float64(nodes)), usages: used,
	}, nil
}

// awaitUnlocked waits until no node is locked. It lists only metadata, and polls rarely, as these
// requests count, too.
func (c *cluster) awaitUnlocked(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		leases := &metav1.PartialObjectMetadataList{}
		leases.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("LeaseList"))
		if err := c.api.List(ctx, leases, client.InNamespace(transactionNamespace)); err != nil {
			return false, err
		}
		for i := range leases.Items {
			if c.fleet[leases.Items[i].Name] != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the locks to be gone: %w", err)
	}
	return nil
}
