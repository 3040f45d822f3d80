package output

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"nodekeeper.dev/internal/labels"
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
			d.Minus(KeyValue(key, was))
		}
		if hasIt {
			d.Plus(KeyValue(key, is))
		}
	}
}

// Shown returns a value of an annotation as it is, or quoted if it has characters that a terminal does
// not show as they are: anybody who may annotate a Node chooses them.
func Shown(value string) string {
	if strings.ContainsFunc(value, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return strconv.Quote(value)
	}
	return value
}

// Harmless returns a text that others wrote, such as the note of an event, without the characters by
// which it could control the terminal.
func Harmless(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}

// KeyValue formats an entry of a record for people: a label as "key=value", a taint as
// "taint key=value:Effect", an annotation as "annotation key=value".
func KeyValue(key, value string) string {
	if annotation, ok := labels.AsAnnotation(key); ok {
		return "annotation " + annotation + "=" + Shown(value)
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
