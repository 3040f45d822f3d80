package main

import (
	"context"
	"errors"
)

// half does the same again with half of the nodes, on the same API server and with the same programs.
func half(ctx context.Context, r *report, c *cluster) error {
	all, ok := r.value(allDrained)
	if !ok {
		return errors.New("there is nothing to compare half of the nodes with")
	}
	r.heading("half of the nodes are deleted and come back")
	m, err := c.cycle(ctx, c.members()[:len(c.fleet)/2], "half")
	if err != nil {
		return err
	}
	r.scene.name = "half"
	r.add("half of the nodes, all restored and drained", "s", m.took.Seconds())
	r.add("all against half", "", all/m.took.Seconds())
	return nil
}
