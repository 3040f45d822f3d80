package output

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// WriteChanges writes which labels change.
func WriteChanges(w io.Writer, before, after map[string]string) {
	NewDiff(w).Changes(before, after)
}

// Diff writes what is taken away and what is added, in colours on a terminal.
type Diff struct {
	w                   io.Writer
	removed, added, end string
}

// NewDiff returns what writes to w.
func NewDiff(w io.Writer) *Diff {
	if colored(w) {
		return &Diff{w, red, green, plain}
	}
	return &Diff{w: w}
}

// Minus writes what is taken away.
func (d *Diff) Minus(text string) { _, _ = fmt.Fprintf(d.w, "%s-%s%s\n", d.removed, text, d.end) }

// Plus writes what is added.
func (d *Diff) Plus(text string) { _, _ = fmt.Fprintf(d.w, "%s+%s%s\n", d.added, text, d.end) }

// Changes writes which labels differ, in the order of their keys.
func (d *Diff) Changes(before, after map[string]string) {
	for _, key := range sortedKeys(before, after) {
		was, hadIt := before[key]
		is, hasIt := after[key]
		if hadIt && hasIt && was == is {
			continue
		}
		if hadIt {
			d.Minus(key + "=" + was)
		}
		if hasIt {
			d.Plus(key + "=" + is)
		}
	}
}

// sortedKeys returns the keys of both maps.
func sortedKeys(a, b map[string]string) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}
