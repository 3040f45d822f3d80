package robustness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// report is what was done in a run, or in several, and what came of it.
type report struct {
	faults map[string]int // how many of each type were injected
	exits  map[string]int // why programs ended by themselves
	broken map[error]int  // how often each promise was broken
	tally  tally
}

func (r *report) add(other *report) {
	addAll(r.faults, other.faults)
	addAll(r.exits, other.exits)
	addAll(r.broken, other.broken)
	r.tally.add(other.tally)
}

func addAll[K comparable](to, from map[K]int) {
	for what, count := range from {
		to[what] += count
	}
}

// String tells it in a few lines.
func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "faults injected: %d: %s\n", sum(r.faults), counts(r.faults))
	c := r.tally
	fmt.Fprintf(&b, "history: %d events: %d nodes created, %d deleted, %d restored, %d more when they were created; %d transactions recorded, %d removed; %d writes of records\n",
		c.events, c.creates, c.deletes, c.restores, c.admitted, c.recorded, c.removed, c.saves)
	if len(r.exits) > 0 {
		fmt.Fprintf(&b, "programs that ended by themselves and were started again: %d:\n  %s\n", sum(r.exits), strings.ReplaceAll(counts(r.exits), ", ", "\n  "))
	}
	for err, count := range r.broken {
		fmt.Fprintf(&b, "%d times broken: %v\n", count, err)
	}
	fmt.Fprintf(&b, "violations: %d", sum(r.broken))
	return b.String()
}

func sum[K comparable](counts map[K]int) int {
	all := 0
	for _, count := range counts {
		all += count
	}
	return all
}

func counts(of map[string]int) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s %d", what, of[what]))
	}
	return strings.Join(all, ", ")
}
