package main

import (
	"context"

	"nodekeeper.dev/test/story"
)

// steps returns all steps, in order. Each starts from the state that the previous ones left.
func (s *stage) steps() []story.Step {
	of := func(run func(context.Context, *stage) error) func(context.Context) error {
		return func(ctx context.Context) error { return run(ctx, s) }
	}
	return []story.Step{
		{
			Title:   "Nodes get labels",
			Promise: "every node has a record, which holds exactly that node's labels",
			Run:     of(recordNodes),
		},
		{
			Title:   "A label is edited, and the node deleted",
			Promise: "an edit and a delete are recorded; the record has the node's last labels",
			Run:     of(loseNode),
		},
		{
			Title:   "The node comes back without its labels",
			Promise: "a node that comes back gets exactly its saved labels, and the marker",
			Run:     of(returnNode),
		},
		{
			Title:   "The user edits the labels, and the node goes away again",
			Promise: "a user's edits come back too, and what the user removed stays removed",
			Run:     of(keepEdits),
		},
		{
			Title:   "Delete, add, delete, add: as fast as the API server takes it",
			Promise: "after delete, add, delete, add the node has its labels; its queue is empty",
			Run:     of(flap),
		},
		{
			Title:   "A processor dies in the middle of work on many nodes",
			Promise: "a processor dies at work, the other one finishes: every node has its labels",
			Run:     of(killProcessor),
		},
		{
			Title:   "At the end",
			Promise: "at the end the queue is empty, and every node and its record agree",
			Run:     of(audit),
		},
	}
}
