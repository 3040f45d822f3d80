package main

import (
	"context"
	"errors"
	"time"
)

// startup measures how long the programs take to become ready if there are many nodes, each with an
// up-to-date record.
func startup(ctx context.Context, r *report, nodes int, s setup) (err error) {
	r.heading("the programs start, %d nodes are there", nodes)
	c, err := openCluster(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.recruit(ctx, nodes); err != nil {
		return err
	}
	if err := newBareClient(c, 1).found(ctx); err != nil {
		return err
	}
	r.scene = scene{name: "startup", nodes: nodes, replicas: 1}
	for program, args := range map[string][]string{"watcher": nil, "processor": nil} {
		began := time.Now()
		if err := c.start(program, 1, args...); err != nil {
			return err
		}
		if err := c.awaitReady(ctx); err != nil {
			return err
		}
		r.add(program+" ready", "s", time.Since(began).Seconds())
	}
	used, err := c.usages()
	if err != nil {
		return err
	}
	for _, p := range c.programs {
		r.add(p.Identity+" memory", "MiB", used[p.Identity].PeakMiB())
	}
	return nil
}
