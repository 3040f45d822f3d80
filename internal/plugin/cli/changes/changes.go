// Package changes prints the differences between two sets of labels, annotations and taints.
package changes

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/labels"
)

// The colors of lines.
const (
	red   = "\x1b[31m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

// Write writes the differences in the order of their keys.
func Write(w io.Writer, before, after map[string]string) {
	NewWriter(w).Write(before, after)
}

// Writer writes lines that are removed and added, in color on a terminal.
type Writer struct {
	w                   io.Writer
	removed, added, end string
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer {
	if output.IsColored(w) {
		return &Writer{w, red, green, plain}
	}
	return &Writer{w: w}
}

// Minus writes a line that is removed.
func (d *Writer) Minus(text string) { _, _ = fmt.Fprintf(d.w, "%s-%s%s\n", d.removed, text, d.end) }

// Plus writes a line that is added.
func (d *Writer) Plus(text string) { _, _ = fmt.Fprintf(d.w, "%s+%s%s\n", d.added, text, d.end) }

// Write writes the differences in the order of their keys.
func (d *Writer) Write(before, after map[string]string) {
	for _, key := range sortedKeys(before, after) {
		was, hadIt := before[key]
		is, hasIt := after[key]
		if hadIt && hasIt && was == is {
			continue
		}
		if hadIt {
			d.Minus(keyValue(key, was))
		}
		if hasIt {
			d.Plus(keyValue(key, is))
		}
	}
}

// keyValue formats an entry of a record: a label as "key=value", a taint as
// "taint key=value:Effect", an annotation as "annotation key=value".
func keyValue(key, value string) string {
	if annotation, ok := labels.AsAnnotation(key); ok {
		return "annotation " + annotation + "=" + output.Shown(value)
	}
	if taint, effect, ok := labels.AsTaint(key); ok {
		if value != "" {
			taint += "=" + value
		}
		return "taint " + taint + ":" + effect
	}
	return key + "=" + value
}

// sortedKeys returns the keys of both maps.
func sortedKeys(a, b map[string]string) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}
