package processor

import (
	"context"
	"time"
)

// SweepRecordsOnce is one round of the sweep of records, at a time of the test's choice.
func (p *Processor) SweepRecordsOnce(ctx context.Context, now time.Time) error {
	return p.sweepRecordsOnce(ctx, now)
}

// SweepRecords is the sweep of records, until ctx is cancelled.
func (p *Processor) SweepRecords(ctx context.Context) error { return p.sweepRecords(ctx) }

// Note formats the note of an event.
func Note(format string, args ...any) string { return note(format, args...) }

// ReturnedAt is when a node returned.
func ReturnedAt(created, seen time.Time) time.Time { return returnedAt(created, seen) }

// The parts of a controller that probes ask.
var (
	AddProbes = addProbes
	Probed    = probed
	Beats     = beats
)
