package cluster

import (
	"context"
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

// Plot is what happens in a run of one product.
type Plot struct {
	// Name is that of the product.
	Name   string
	scenes []scene
	// end is when the story ends.
	end time.Duration
}

// Plots are those of all products.
func Plots() []Plot { return []Plot{keeper(), sharder(), placement()} }

// Play runs the whole story. It calls report at the start of each event.
func (c *Cluster) Play(ctx context.Context, plot Plot, report func(Event)) (Story, error) {
	story := Story{From: time.Now()}
	all, ctx := errgroup.WithContext(ctx)
	for _, s := range plot.scenes {
		if pause(ctx, time.Until(story.From.Add(s.after))) != nil {
			return Story{}, all.Wait()
		}
		e := Event{At: time.Now(), What: s.what}
		story.Events = append(story.Events, e)
		report(e)
		all.Go(func() error { return s.play(ctx, c) })
	}
	all.Go(func() error { return pause(ctx, time.Until(story.From.Add(plot.end))) })
	err := all.Wait()
	story.To = time.Now()
	return story, err
}
