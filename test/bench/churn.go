package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
)

// absence is the time between the deletion and the return of a node.
const absence = time.Second

// churn deletes and recreates nodes at a steady rate.
func churn(ctx context.Context, r *report, c *cluster, duration time.Duration, rate int) error {
	r.heading("%d nodes a second come and go, for %s", rate, duration)
	w, err := c.window(ctx)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(c.fleet))
	count := int(duration.Seconds() * float64(rate))
	if len(names) < 5*rate {
		return fmt.Errorf("%d nodes are too few to let %d a second come and go: a node would be deleted while it is away", len(names), rate)
	}
	endProfiles := c.profiles.cpu(ctx, c, "churn")
	returned := make([]types.UID, count)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	all, allCtx := errgroup.WithContext(ctx)
	for i := range count {
		select {
		case <-allCtx.Done():
			return all.Wait()
		case <-tick.C:
		}
		m := c.fleet[names[i%len(names)]]
		all.Go(func() error {
			uid, err := c.recreate(allCtx, m)
			returned[i] = uid
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if _, err := c.see.awaitQuiet(ctx, returned); err != nil {
		return err
	}
	if err := endProfiles(); err != nil {
		return err
	}
	m, err := w.end(ctx, count)
	if err != nil {
		return err
	}
	r.scene.name = "churn"
	m.latencies = c.see.latencies(returned)
	r.addMeasured(m)
	return c.check(ctx)
}

// recreate deletes a node and registers it again after its absence. It returns the new UID.
func (c *cluster) recreate(ctx context.Context, m *member) (types.UID, error) {
	if err := c.delete(ctx, m); err != nil {
		return "", err
	}
	if err := pause(ctx, absence); err != nil {
		return "", err
	}
	if err := c.register(ctx, m); err != nil {
		return "", err
	}
	return m.uid, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
