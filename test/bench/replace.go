package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nodekeeper.dev/test/programs"
)

const (
	// replacePeriod is the interval between two kills. Each of three processors lives for two seconds,
	// one of which it needs to start. On a busy machine, which takes longer, the next kill waits.
	replacePeriod = 700 * time.Millisecond
	// starved is the time after which a measurement is aborted because nodes wait too long.
	starved = 4 * time.Minute

	replacedWatchers, replacedProcessors = 2, 3
)

// replaceSteadily measures the return of nodes while the processors are killed in turn and replaced
// by new ones with other identities, and one watcher is replaced first. Before that, it measures
// the same without kills.
func replaceSteadily(ctx context.Context, r *report, nodes int) (err error) {
	r.heading("%d nodes are deleted and come back while a processor is replaced every %s", nodes, replacePeriod)
	c, err := openCluster(ctx, setup{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.populate(ctx, nodes, replacedWatchers, replacedProcessors); err != nil {
		return err
	}
	undisturbed, err := c.timeReturn(ctx, c.leave)
	if err != nil {
		return err
	}
	r.scene = scene{name: "replace", nodes: nodes, replicas: replacedProcessors}
	r.addReturn("no replica is replaced", undisturbed)

	if err := c.replace(c.running("watcher")[0]); err != nil {
		return err
	}
	killer := repeat(ctx, replacePeriod, func() (int, error) {
		processors := c.running("processor")
		if err := processors[1].WaitReady(ctx); err != nil { // so that the next to be killed has worked for a period
			return 0, err
		}
		return 1, c.replace(processors[0])
	})
	disturbed, err := c.timeReturn(ctx, c.leave)
	kills, killErr := killer()
	if err := errors.Join(err, killErr); err != nil {
		return fmt.Errorf("after %d kills: %w", kills, err)
	}
	r.addReturn("a processor is replaced every 0.7 s", disturbed)
	r.add("processors replaced", "", float64(kills))
	r.add("longer than twice the time without", "s", (disturbed.drained - 2*undisturbed.drained).Seconds())
	return c.check(ctx)
}

// replaceAtOnce measures the return of nodes just when all replicas are killed and replaced by new
// ones with other identities.
func replaceAtOnce(ctx context.Context, r *report, nodes int) (err error) {
	r.heading("%d nodes come back just when all replicas are replaced", nodes)
	c, err := openCluster(ctx, setup{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.populate(ctx, nodes, replacedWatchers, replacedProcessors); err != nil {
		return err
	}
	returned, err := c.timeReturn(ctx, func(ctx context.Context) error {
		return errors.Join(c.leave(ctx), c.replace(slices.Clone(c.programs)...))
	})
	if err != nil {
		return err
	}
	r.scene = scene{name: "replace all", nodes: nodes, replicas: replacedProcessors}
	r.addReturn("all replicas are replaced", returned)
	return c.check(ctx)
}

// returned contains durations from the creation of the first node.
type returned struct {
	// restored ends when the last node has its labels, drained when the last transaction is removed,
	// too.
	restored, drained time.Duration
}

func (r *report) addReturn(what string, took returned) {
	r.add(what+", last node restored", "s", took.restored.Seconds())
	r.add(what+", all drained", "s", took.drained.Seconds())
}

// timeReturn calls before, recreates all nodes, and returns the durations from then on.
func (c *cluster) timeReturn(ctx context.Context, before func(context.Context) error) (returned, error) {
	ctx, cancel := context.WithTimeout(ctx, starved)
	defer cancel()
	if err := before(ctx); err != nil {
		return returned{}, err
	}
	began := time.Now()
	if err := c.each(ctx, c.members(), c.register); err != nil {
		return returned{}, err
	}
	last, err := c.see.awaitQuiet(ctx, uids(c.members()))
	if err != nil {
		return returned{}, err
	}
	return returned{restored: c.see.lastRestored(uids(c.members())).Sub(began), drained: last.Sub(began)}, nil
}

// leave deletes every node.
func (c *cluster) leave(ctx context.Context) error { return c.each(ctx, c.members(), c.delete) }

// running returns the replicas of a program, oldest first.
func (c *cluster) running(name string) []*programs.Program {
	return slices.DeleteFunc(slices.Clone(c.programs), func(p *programs.Program) bool { return p.Name != name })
}
