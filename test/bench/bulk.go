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

// bulk deletes all nodes and creates them again: first with the bare client, then with nodekeeper, on the same API server.
// It leaves the programs running, and returns how long nodekeeper took.
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

// cycle deletes nodes and creates them again, and returns what was measured until all are restored and all queues empty.
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

// timeBare lets the bare client do it.
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
	// The yardstick is one only if it does what it says.
	if per := after.since(before).per(float64(len(c.fleet))); per.writes() != 7 || per.reads() != 0 {
		return 0, fmt.Errorf("%v writes and %v reads for each node, not 7 and 0: %v", per.writes(), per.reads(), per)
	}
	return took, c.check(ctx)
}

// startAll starts as many of each program and returns when they have nothing to do.
func (c *cluster) startAll(ctx context.Context, replicas int) error {
	return c.startSome(ctx, replicas, replicas)
}

// startSome starts programs and returns when they have nothing to do.
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

// check returns an error unless every node has its labels, its record has them too, and no transaction is left.
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

// window is a time in which is measured.
type window struct {
	*cluster

	began  time.Time
	before served
	usages map[string]programs.Usage
}

// measured is what was in a window.
type measured struct {
	took time.Duration
	// latencies are from the creation of each node to its labels, sorted.
	latencies []time.Duration
	// creations are how long the requests that created the nodes took, sorted.
	creations []time.Duration
	// answers are those of the webhook.
	answers answers
	// calls are for each node, usages those of each process: the CPU time in the window, the peak since the process started.
	calls  calls
	usages map[string]programs.Usage
}

func (c *cluster) window(ctx context.Context) (*window, error) {
	before, err := c.served(ctx)
	if err != nil {
		return nil, err
	}
	c.created.take() // before the window
	used, err := c.usages()
	return &window{cluster: c, before: before, usages: used, began: time.Now()}, err
}

// end ends the window when every lock is gone, if all can be: what their removal costs belongs to it.
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

// awaitUnlocked returns when no node is locked. It looks by metadata only, and seldom, as that is counted too.
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
