package cluster

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// Story is what happened in a run, for those who look at what was scraped.
type Story struct {
	From, To time.Time
	Events   []Event
}

// Event is something that happened, and when it began.
type Event struct {
	At   time.Time
	What string
}

// scene is a part of the story.
type scene struct {
	// after is when it begins, from the start of the story.
	after time.Duration
	what  string
	play  func(context.Context, *Cluster) error
}

// scenes leave room between the waves, in which everything is at rest. A scene that takes longer
// does not delay the next.
var scenes = []scene{
	{0, "two watchers and two processors start", func(ctx context.Context, c *Cluster) error {
		return c.run(ctx, nil, "watcher", "watcher", "processor", "processor")
	}},
	{10 * time.Second, fmt.Sprintf("%d nodes join, and a user labels them", fleet), func(ctx context.Context, c *Cluster) error { return c.each(ctx, fleet, c.join) }},
	{25 * time.Second, "half of the nodes go and come back", func(ctx context.Context, c *Cluster) error { return c.each(ctx, fleet/2, c.comeBack) }},
	{40 * time.Second, "all nodes go and come back", wave},
	{54 * time.Second, "all nodes go and come back", wave},
	{60 * time.Second, "processor-1 is killed meanwhile", func(_ context.Context, c *Cluster) error { return c.kill("processor-1") }},
	{76 * time.Second, "processor-3 starts in its place", func(ctx context.Context, c *Cluster) error { return c.run(ctx, nil, "processor") }},
	{84 * time.Second, "a user changes a label of each node", func(ctx context.Context, c *Cluster) error { return c.each(ctx, fleet, c.repaint) }},
	{98 * time.Second, "a webhook starts", func(ctx context.Context, c *Cluster) error { return c.runWebhook(ctx) }},
	{108 * time.Second, "all nodes go and come back", wave},
	{124 * time.Second, "all nodes go and come back", wave},
}

// end is when the story ends.
const end = 140 * time.Second

func wave(ctx context.Context, c *Cluster) error { return c.each(ctx, fleet, c.comeBack) }

// Play runs the whole story. It calls report at the start of each event.
func (c *Cluster) Play(ctx context.Context, report func(Event)) (Story, error) {
	story := Story{From: time.Now()}
	all, ctx := errgroup.WithContext(ctx)
	for _, s := range scenes {
		if pause(ctx, time.Until(story.From.Add(s.after))) != nil {
			return Story{}, all.Wait()
		}
		e := Event{At: time.Now(), What: s.what}
		story.Events = append(story.Events, e)
		report(e)
		all.Go(func() error { return s.play(ctx, c) })
	}
	all.Go(func() error { return pause(ctx, time.Until(story.From.Add(end))) })
	err := all.Wait()
	story.To = time.Now()
	return story, err
}
