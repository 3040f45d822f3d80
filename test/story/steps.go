package story

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Step is one part of a story.
type Step struct {
	Title   string
	Promise string // the expected result
	Run     func(context.Context) error
}

// Result is the outcome of a step.
type Result struct {
	Step Step
	Err  error
	Took time.Duration
}

// ErrNotReached is the result of the steps after one that failed.
var ErrNotReached = errors.New("not reached")

// ErrNotAsExpected is returned by [Failure].
var ErrNotAsExpected = errors.New("not everything happened as expected")

// Play runs the steps until one fails, or the limit has passed. After each, check returns what else
// is wrong.
func Play(ctx context.Context, limit time.Duration, out *Screen, steps []Step, check func() error) []Result {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var results []Result
	var failed bool
	for i, st := range steps {
		r := Result{Step: st, Err: ErrNotReached}
		if !failed {
			out.Heading(fmt.Sprintf("%d/%d  %s", i+1, len(steps), st.Title))
			start := time.Now()
			r.Err = errors.Join(st.Run(ctx), check())
			r.Took = time.Since(start)
			out.printResult(ctx, r)
			failed = r.Err != nil
		}
		results = append(results, r)
	}
	return results
}

func (s *Screen) printResult(ctx context.Context, r Result) {
	switch {
	case r.Err == nil:
		s.Result(true, r.Step.Promise)
	case errors.Is(ctx.Err(), context.Canceled):
		s.Result(false, "interrupted")
	default:
		s.Result(false, r.Err.Error())
	}
}

// Failure returns [ErrNotAsExpected] if a step failed.
func Failure(results []Result) error {
	for _, r := range results {
		if r.Err != nil {
			return ErrNotAsExpected
		}
	}
	return nil
}

// Summary prints the outcome of every step.
func (s *Screen) Summary(results []Result) {
	s.Heading("Summary")
	for i, r := range results {
		text := fmt.Sprintf("%d  %s", i+1, r.Step.Promise)
		switch {
		case r.Err == nil:
			text = fmt.Sprintf("%-80s %7s", text, InSeconds(r.Took))
		case errors.Is(r.Err, ErrNotReached):
			text += " (not reached)"
		}
		s.Result(r.Err == nil, text)
	}
}
