package robustness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// report describes one or several runs and their results.
type report struct {
	faults map[string]int // injected faults by type
	exits  map[string]int // reasons why programs ended by themselves
	broken map[error]int  // broken promises
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

// String returns the report as a few lines.
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
