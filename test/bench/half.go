package main

import (
	"context"
	"time"
)

// half repeats the measurement with half of the nodes, on the same API server and with the same
// programs. All is the time that all nodes took.
func half(ctx context.Context, r *report, c *cluster, all time.Duration) error {
	r.heading("half of the nodes are deleted and come back")
	m, err := c.cycle(ctx, c.members()[:len(c.fleet)/2], "half")
	if err != nil {
		return err
	}
	r.scene.name = "half"
	r.add("half of the nodes, all restored and drained", "s", m.took.Seconds())
	r.add("all against half", "", all.Seconds()/m.took.Seconds())
	return nil
}
