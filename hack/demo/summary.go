package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"nodekeeper.dev/test/story"
	"nodekeeper.dev/internal/txn"
)

// printSummary prints the outcome of every step, and the measured latencies.
func (s *stage) printSummary(results []story.Result) {
	s.out.Summary(results)
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
	s.out.Note("\n  From the ADDED event of a node that came back to the MODIFIED event with its labels:")
	s.out.Note("    with both processors     " + spread(quiet))
	s.out.Note("    while a processor died   " + spread(crash))
	s.out.Note("  " + countTransactions(h))
	if story.Failure(results) == nil {
		s.out.Note(fmt.Sprintf("\n  Everything happened as expected, in %s.", story.InSeconds(time.Since(s.out.Start))))
	}
}

// spread summarises latencies.
func spread(latencies []time.Duration) string {
	if len(latencies) == 0 {
		return "no restores"
	}
	slices.Sort(latencies)
	return fmt.Sprintf("%2d restores   p50 %7s   max %7s",
		len(latencies), story.InMillis(latencies[(len(latencies)-1)/2]), story.InMillis(latencies[len(latencies)-1]))
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
