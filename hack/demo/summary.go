package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"nodekeeper.dev/internal/txn"
)

// printSummary prints the outcome of every step, and the measured latencies.
func (s *stage) printSummary(results []result) {
	s.out.heading("Summary")
	for i, r := range results {
		text := fmt.Sprintf("%d  %s", i+1, r.step.promise)
		switch {
		case r.err == nil:
			text = fmt.Sprintf("%-80s %7s", text, inSeconds(r.took))
		case errors.Is(r.err, errNotReached):
			text += " (not reached)"
		}
		s.out.result(r.err == nil, text)
	}
	h := s.see.history()
	var quiet, crash []time.Duration
	for _, l := range h.lives() {
		switch {
		case !l.restored.happened() || !l.added.happened():
		case strings.HasPrefix(l.added.obj.GetName(), poolPrefix):
			crash = append(crash, l.latency())
		default:
			quiet = append(quiet, l.latency())
		}
	}
	s.out.note("\n  From the ADDED event of a node that came back to the MODIFIED event with its labels:")
	s.out.note("    with both processors     " + spread(quiet))
	s.out.note("    while a processor died   " + spread(crash))
	s.out.note("  " + countTransactions(h))
	if failure(results) == nil {
		s.out.note(fmt.Sprintf("\n  Everything happened as expected, in %s.", inSeconds(time.Since(s.out.start))))
	}
}

// spread summarises latencies.
func spread(latencies []time.Duration) string {
	if len(latencies) == 0 {
		return "no restores"
	}
	slices.Sort(latencies)
	return fmt.Sprintf("%2d restores   p50 %7s   max %7s",
		len(latencies), inMillis(latencies[(len(latencies)-1)/2]), inMillis(latencies[len(latencies)-1]))
}

// countTransactions describes how many transactions were seen.
func countTransactions(h history) string {
	types := map[txn.Type]int{}
	seen := map[string]bool{}
	again := 0
	for _, e := range h {
		if e.kind != transactions || e.typ != watch.Added {
			continue
		}
		if seen[e.obj.GetName()] {
			again++
			continue
		}
		seen[e.obj.GetName()] = true
		types[txn.Type(e.obj.GetLabels()[txn.TypeLabel])]++
	}
	text := fmt.Sprintf("Transactions: %d (%d added, %d updated, %d deleted), %d left",
		len(seen), types[txn.Added], types[txn.Updated], types[txn.Deleted], len(h.present(transactions)))
	if again > 0 {
		text += fmt.Sprintf("; %d of them were stored twice", again)
	}
	return text
}
