package cluster

import (
	"context"
	"fmt"
	"time"
)

// keeperNamespace is where the label keeper runs.
const keeperNamespace = "nodekeeper-system"

// keeper returns the plot of the label keeper. Its scenes leave room between the waves, in which
// everything is at rest. A scene that takes longer does not delay the next.
func keeper() Plot {
	return Plot{Name: "nodekeeper", end: 140 * time.Second, scenes: []scene{
		{0, "two watchers and two processors start", func(ctx context.Context, c *Cluster) error {
			return c.run(ctx, keeperNamespace, nil, "watcher", "watcher", "processor", "processor")
		}},
		{10 * time.Second, fmt.Sprintf("%d nodes join, and a user labels them", fleet), func(ctx context.Context, c *Cluster) error { return c.each(ctx, fleet, c.join) }},
		{25 * time.Second, "half of the nodes go and come back", func(ctx context.Context, c *Cluster) error { return c.each(ctx, fleet/2, c.comeBack) }},
		{40 * time.Second, "all nodes go and come back", wave},
		{54 * time.Second, "all nodes go and come back", wave},
		{60 * time.Second, "processor-1 is killed meanwhile", func(_ context.Context, c *Cluster) error { return c.kill("processor-1") }},
		{76 * time.Second, "processor-3 starts in its place", func(ctx context.Context, c *Cluster) error { return c.run(ctx, keeperNamespace, nil, "processor") }},
		{84 * time.Second, "a user changes a label of each node", func(ctx context.Context, c *Cluster) error { return c.each(ctx, fleet, c.repaint) }},
		{98 * time.Second, "a webhook starts", func(ctx context.Context, c *Cluster) error { return c.runWebhook(ctx) }},
		{108 * time.Second, "all nodes go and come back", wave},
		{124 * time.Second, "all nodes go and come back", wave},
	}}
}

func wave(ctx context.Context, c *Cluster) error { return c.each(ctx, fleet, c.comeBack) }
