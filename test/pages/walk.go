package pages

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	// period is the time between two looks.
	period = 100 * time.Millisecond
	// commandTimeout ends a command that hangs before the time of all tests is over.
	commandTimeout = 10 * time.Minute
)

// Walk types the commands of a page. All fields but Names and Adapt are required.
type Walk struct {
	Page       *Page
	Treatments Treatments
	Shell      *Shell
	// LookFor is how long a look is repeated until it prints what the page shows.
	LookFor time.Duration
	// Names replaces what has another name here than on the page.
	Names *strings.Replacer
	// Adapt changes what the page shows and what came before they are compared, where the page
	// states how they differ.
	Adapt func(step Step, shown, came []string) (adaptedShown, adaptedCame []string)

	meanings Meanings
}

// Type types all commands, and compares what comes with what the page shows, until something is
// wrong. Where the page shows nothing, anything may come. It returns how long that took, without
// builds.
func (w *Walk) Type(ctx context.Context, logf func(format string, args ...any)) (time.Duration, error) {
	w.meanings = Meanings{}
	var all time.Duration
	for _, step := range w.Page.Steps {
		one, isKnown := w.Treatments.Of(step.Script)
		if !isKnown {
			return all, fmt.Errorf("%s:%d: no treatment for this command: %s", w.Page.Name, step.Line, step.Script)
		}
		if one.Kind == Skip {
			continue
		}
		begin := time.Now()
		if err := w.typeStep(ctx, step, one); err != nil {
			return all, fmt.Errorf("%s:%d: %w", w.Page.Name, step.Line, err)
		}
		took := time.Since(begin)
		logf("%s:%d: %s (%.1f s)", w.Page.Name, step.Line, step.Script, took.Seconds())
		if one.Kind != Build {
			all += took
		}
	}
	logf("%s took %s", w.Page.Name, all.Round(time.Second))
	return all, nil
}

// typeStep types a command. One that only looks is repeated until it prints what the page shows.
func (w *Walk) typeStep(ctx context.Context, step Step, one Treatment) error {
	script := step.Script
	if one.Instead != "" {
		script = one.Instead + strings.TrimPrefix(script, one.Prefix)
	}
	script, shown := w.renamed(script), strings.Split(w.renamed(strings.Join(step.Shown, "\n")), "\n")
	for begin := time.Now(); ; {
		came, err := w.run(ctx, script)
		if err == nil {
			err = w.compare(step, shown, came)
		}
		if err == nil {
			return nil
		}
		if one.Kind != Look || time.Since(begin) > w.LookFor || ctx.Err() != nil {
			return fmt.Errorf("%w\ntyped: %s\nthe page shows:\n%s\nwhat came:\n%s", err, script, strings.Join(shown, "\n"), came)
		}
		pause(ctx)
	}
}

func (w *Walk) renamed(text string) string {
	if w.Names == nil {
		return text
	}
	return w.Names.Replace(text)
}

func (w *Walk) run(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return w.Shell.Run(ctx, script)
}

// pause waits between two looks.
func pause(ctx context.Context) {
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// compare returns an error if a command did not print what the page shows.
func (w *Walk) compare(step Step, shown []string, came string) error {
	if step.Shown == nil {
		return nil
	}
	lines := strings.Split(came, "\n")
	if w.Adapt != nil {
		shown, lines = w.Adapt(step, shown, lines)
	}
	with, agreed, isSame := w.meanings.Agree(shown, lines)
	if !isSame {
		at := "something more than the page shows"
		if agreed < len(shown) {
			at = "not this line: " + shown[agreed]
		}
		return fmt.Errorf("after %d lines that are as on the page came %s", agreed, at)
	}
	w.meanings = with
	return nil
}
