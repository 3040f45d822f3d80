package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/story"
)

const (
	worker1, worker2, worker3 = "worker-1", "worker-2", "worker-3"

	poolPrefix = "pool-"
	poolSize   = 30
	// hands is how many nodes of the pool are deleted and re-created at a time.
	hands = 8
	// enough is how many nodes have their labels again when a processor is killed: it is at work, and
	// far from done.
	enough = 3
)

// steps returns all steps, in order. Each starts from the state that the previous ones left.
func (d *demo) steps() []story.Step {
	return []story.Step{
		{Title: "Nodes get labels", Promise: "every node has a record, which holds exactly that node's labels", Run: d.recordNodes},
		{
			Title: "A label is edited, and the node deleted", Promise: "an edit and a delete are recorded; the record has the node's last labels",
			Run: func(ctx context.Context) error { return d.lose(ctx, worker1, "rack=r12") },
		},
		{
			Title: "The node comes back without its labels", Promise: "a node that comes back gets exactly its saved labels, and the marker",
			Run: func(ctx context.Context) error { return d.regain(ctx, worker1) },
		},
		{
			Title: "The user edits the labels, and the node goes away again", Promise: "a user's edits come back too, and what the user removed stays removed",
			Run: func(ctx context.Context) error {
				if err := d.lose(ctx, worker1, "example.com/team=green", "example.com/owner=ops", "disk-"); err != nil {
					return err
				}
				return d.regain(ctx, worker1)
			},
		},
		{
			Title: "Delete, add, delete, add: as fast as the API server takes it", Promise: "after delete, add, delete, add the node has its labels; its queue is empty",
			Run: d.flap,
		},
		{
			Title: "A processor dies in the middle of work on many nodes", Promise: "a processor dies at work, the other one finishes: every node has its labels",
			Run: d.killProcessor,
		},
		{Title: "At the end", Promise: "at the end the queue is empty, and every node and its record agree", Run: d.audit},
	}
}

// does prints what the user is about to do.
func (d *demo) does(text string) { d.Action(time.Now(), "user", text) }

// untilSettled waits until nodes and their records are as the user wants them.
func (d *demo) untilSettled(ctx context.Context, returned bool, names ...string) error {
	return d.Until(ctx, func(ctx context.Context) error { return d.isSettled(ctx, returned, names...) })
}

func (d *demo) recordNodes(ctx context.Context) error {
	workers := []string{worker1, worker2, worker3}
	for i, own := range []map[string]string{
		{"disk": "ssd", "example.com/team": "blue", "node-role.kubernetes.io/gpu": "", "rack": "r7"},
		{"example.com/team": "red", "rack": "r8"},
		{"rack": "r9"},
	} {
		d.does("create node " + workers[i])
		if err := d.introduce(ctx, workers[i], own); err != nil {
			return err
		}
	}
	return d.untilSettled(ctx, false, workers...)
}

// lose edits the labels of a node and deletes it, and waits until both are recorded.
func (d *demo) lose(ctx context.Context, name string, changes ...string) error {
	d.does("label node " + name + " " + strings.Join(changes, " "))
	if err := d.edit(ctx, name, changes...); err != nil {
		return err
	}
	if err := d.untilSettled(ctx, false, name); err != nil {
		return err
	}
	deleted := func() (n int) {
		d.see.look(func() { n = d.see.done[txn.Deleted] })
		return n
	}
	before := deleted()
	d.does("delete node " + name)
	if err := d.remove(ctx, name); err != nil {
		return err
	}
	return d.Until(ctx, func(ctx context.Context) error {
		if deleted() == before {
			return fmt.Errorf("no transaction of the end of node %s came and went", name)
		}
		var record corev1.ConfigMap
		if err := d.api.Get(ctx, client.ObjectKey{Namespace: metadataNamespace, Name: name}, &record); err != nil {
			return err
		}
		return errors.Join(holds(&record, d.want[name]), d.isQueueEmpty(ctx))
	})
}

// regain brings a node back, and waits until it has its labels.
func (d *demo) regain(ctx context.Context, name string) error {
	d.does("create node " + name + ", as its kubelet does")
	if err := d.bringBack(ctx, name); err != nil {
		return err
	}
	if err := d.untilSettled(ctx, true, name); err != nil {
		return err
	}
	d.see.look(func() {
		d.Action(time.Now(), "", fmt.Sprintf("the labels came %s after the node", story.InMillis(d.see.quiet[len(d.see.quiet)-1])))
	})
	return nil
}

// flap deletes and re-creates a node twice without waiting for anything.
func (d *demo) flap(ctx context.Context) error {
	d.does("delete, create, delete and create node " + worker2)
	start := time.Now()
	for range 2 {
		if err := d.remove(ctx, worker2); err != nil {
			return err
		}
		if err := d.bringBack(ctx, worker2); err != nil {
			return err
		}
	}
	d.Action(time.Now(), "", "the four requests took "+story.InMillis(time.Since(start)))
	return d.untilSettled(ctx, true, worker2)
}

// killProcessor kills a processor while both are busy.
func (d *demo) killProcessor(ctx context.Context) error {
	var pool []string
	for i := range poolSize {
		pool = append(pool, fmt.Sprintf("%s%02d", poolPrefix, i+1))
	}
	d.does(fmt.Sprintf("create nodes %s to %s, each with labels of its own", pool[0], pool[poolSize-1]))
	d.see.look(func() { d.see.mute = true })
	defer d.see.look(func() { d.see.mute = false })
	for i, name := range pool {
		own := map[string]string{"example.com/pool": "batch", "example.com/slot": strconv.Itoa(i + 1), "rack": fmt.Sprintf("r%d", i/4)}
		if err := d.introduce(ctx, name, own); err != nil {
			return err
		}
	}
	if err := d.untilSettled(ctx, false, pool...); err != nil {
		return err
	}
	d.Action(time.Now(), "record", fmt.Sprintf("%d nodes are recorded", poolSize))
	d.does(fmt.Sprintf("delete and re-create all %d nodes, %d at a time", poolSize, hands))
	var at time.Time
	var all errgroup.Group
	all.Go(func() error { return d.recreate(ctx, pool) })
	all.Go(func() (err error) {
		at, err = d.killBusiest(ctx)
		return err
	})
	if err := all.Wait(); err != nil {
		return err
	}
	if err := d.untilSettled(ctx, true, pool...); err != nil {
		return err
	}
	d.see.look(func() {
		if d.see.heir != "" {
			d.Action(d.see.taken, "lock", fmt.Sprintf("%s takes over the first of these locks, %s after the kill", d.see.heir, story.InSeconds(d.see.taken.Sub(at))))
		}
	})
	d.Action(time.Now(), "node", fmt.Sprintf("all %d nodes have their labels, %s after the kill", poolSize, story.InSeconds(time.Since(at))))
	return d.hire(ctx, "processor-3") // in place of the dead one, as a Deployment does
}

// recreate deletes nodes and creates them again, several at a time.
func (d *demo) recreate(ctx context.Context, names []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(hands)
	for _, name := range names {
		group.Go(func() error {
			if err := d.remove(ctx, name); err != nil {
				return err
			}
			return d.bringBack(ctx, name)
		})
	}
	return group.Wait()
}

// killBusiest waits until the processors are in the middle of their work, and kills the one that
// holds most locks.
func (d *demo) killBusiest(ctx context.Context) (at time.Time, err error) {
	var victim string
	var regained int
	for victim == "" {
		select {
		case <-ctx.Done():
			return at, context.Cause(ctx)
		case <-d.see.changed:
		}
		d.see.look(func() {
			if len(d.see.crash) >= enough {
				victim = d.see.busiest()
				d.see.victim = victim
			}
		})
	}
	at = time.Now()
	pid, err := d.Kill(victim)
	if err != nil {
		return at, err
	}
	d.see.look(func() { regained = len(d.see.crash) })
	d.Action(at, "demo", fmt.Sprintf("kill -9 %d: %s, after %d of %d nodes have their labels", pid, victim, regained, poolSize))
	if regained == poolSize {
		return at, errors.New("all nodes were restored before the processor was killed")
	}
	return at, nil
}

// audit checks everything by live reads, and not by the events seen.
func (d *demo) audit(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(d.want))
	if err := d.untilSettled(ctx, false, names...); err != nil {
		return err
	}
	var nodes corev1.NodeList
	var records corev1.ConfigMapList
	if err := errors.Join(d.api.List(ctx, &nodes), d.api.List(ctx, &records, client.InNamespace(metadataNamespace))); err != nil {
		return err
	}
	d.Action(time.Now(), "demo", fmt.Sprintf("%d nodes, %d records, 0 transactions", len(nodes.Items), len(records.Items)))
	if len(nodes.Items) != len(names) || len(records.Items) != len(names) {
		return fmt.Errorf("want %d nodes and as many records", len(names))
	}
	return nil
}
