package main

import (
	"context"
	"fmt"

	"nodekeeper.dev/test/story"
	"nodekeeper.dev/test/programs"
)

// crew is nodekeeper's processes. It belongs to one goroutine.
type crew struct {
	story.Crew

	kubeconfig string
	hired      map[string]int // how many of each program were started; numbers are not used again
}

// start starts programs, side by side, and returns when all are ready.
func (c *crew) start(ctx context.Context, names ...string) error {
	var all []*programs.Program
	for _, name := range names {
		c.hired[name]++
		var args []string
		if name == "processor" {
			args = []string{"--save-delay=0"} // each step shows what is saved of the one before
		}
		p, err := programs.Start(name, fmt.Sprintf("%s-%d", name, c.hired[name]), c.kubeconfig, args...)
		if err != nil {
			return err
		}
		c.Add(p)
		all = append(all, p)
	}
	return c.WaitReady(ctx, all...)
}
