package processor

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/txn"
)

// SweepRecordsOnce is one round of the sweep of records, at a time of the test's choice.
func (p *Processor) SweepRecordsOnce(ctx context.Context, now time.Time) error {
	return p.sweepRecordsOnce(ctx, now)
}

// SweepRecords is the sweep of records, until ctx is cancelled.
func (p *Processor) SweepRecords(ctx context.Context) error { return p.sweepRecords(ctx) }

// LateEnds returns what is kept of the ends of a node after its watch showed these states, each the next of the one before; nil: it is gone.
func LateEnds(node string, states ...*metav1.PartialObjectMetadata) []txn.Transaction {
	var l lateEdits
	var before *metav1.PartialObjectMetadata
	for _, after := range states {
		if after == nil {
			l.end(before)
		} else {
			l.see(before, after)
		}
		before = after
	}
	return l.ends[node]
}

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
