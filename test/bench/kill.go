package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// kill repeats the measurement, and kills a processor (SIGKILL) when half of the nodes are
// restored. Undisturbed is the time without that.
func kill(ctx context.Context, r *report, c *cluster, undisturbed time.Duration) error {
	r.heading("a processor is killed when half of the nodes are restored")
	victim := c.programs[len(c.programs)-1]
	c.programs, c.isMaimed = c.programs[:len(c.programs)-1], true
	began, beside := time.Now(), errgroup.Group{}
	beside.Go(func() error {
		return errors.Join(c.see.awaitRestored(ctx, len(c.fleet)/2, began), victim.Kill())
	})
	m, err := c.cycle(ctx, c.members(), "kill")
	if err := errors.Join(err, beside.Wait()); err != nil {
		return err
	}
	r.scene.name = "kill"
	r.add("with a kill, all restored and drained", "s", m.took.Seconds())
	r.add("longer than without", "s", (m.took - undisturbed).Seconds())
	r.addMeasured(m)
	return nil
}
