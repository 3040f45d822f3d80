package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// step is one part of the story.
type step struct {
	title   string
	promise string // the expected result
	run     func(context.Context, *stage) error
}

// story returns all steps, in order. Each starts from the state that the previous ones left.
func story() []step {
	return []step{
		{"Nodes get labels", "every node has a record, which holds exactly that node's labels", recordNodes},
		{"A label is edited, and the node deleted", "an edit and a delete are recorded; the record has the node's last labels", loseNode},
		{"The node comes back without its labels", "a node that comes back gets exactly its saved labels, and the marker", returnNode},
		{"The user edits the labels, and the node goes away again", "a user's edits come back too, and what the user removed stays removed", keepEdits},
		{"Delete, add, delete, add: as fast as the API server takes it", "after delete, add, delete, add the node has its labels; its queue is empty", flap},
		{"A processor dies in the middle of work on many nodes", "a processor dies at work, the other one finishes: every node has its labels", killProcessor},
		{"At the end", "at the end the queue is empty, and every node and its record agree", audit},
	}
}

// result is the outcome of a step.
type result struct {
	step step
	err  error
	took time.Duration
}

// errNotReached is the result of the steps after one that failed.
var errNotReached = errors.New("not reached")

// play runs the steps until one fails.
func play(ctx context.Context, s *stage, steps []step) []result {
	var results []result
	var failed bool
	for i, st := range steps {
		r := result{step: st, err: errNotReached}
		if !failed {
			s.out.heading(fmt.Sprintf("%d/%d  %s", i+1, len(steps), st.title))
			start := time.Now()
			r.err = errors.Join(st.run(ctx, s), s.crew.check())
			r.took = time.Since(start)
			s.printResult(ctx, r)
			failed = r.err != nil
		}
		results = append(results, r)
	}
	return results
}

func (s *stage) printResult(ctx context.Context, r result) {
	switch {
	case r.err == nil:
		s.out.result(true, r.step.promise)
	case errors.Is(ctx.Err(), context.Canceled):
		s.out.result(false, "interrupted")
	default:
		s.out.result(false, r.err.Error())
	}
}

// failure returns errNotAsExpected if a step failed.
func failure(results []result) error {
	for _, r := range results {
		if r.err != nil {
			return errNotAsExpected
		}
	}
	return nil
}
