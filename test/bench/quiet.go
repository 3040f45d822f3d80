package main

import (
	"context"
	"time"
)

// quiet measures the writes while no node changes.
func quiet(ctx context.Context, r *report, c *cluster, duration time.Duration) error {
	r.heading("nothing happens for %s", duration)
	w, err := c.window(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, duration); err != nil {
		return err
	}
	after, err := c.calls(ctx)
	if err != nil {
		return err
	}
	perMinute := after.since(w.before.calls).per(duration.Minutes())
	r.scene.name = "quiet"
	r.add("writes a minute", "", perMinute.writes())
	r.add("reads a minute", "", perMinute.reads())
	for _, one := range perMinute.sorted() {
		r.add(one.resource+" "+one.verb+" a minute", "", perMinute[one])
	}
	return nil
}
