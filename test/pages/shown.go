package pages

import (
	"maps"
	"regexp"
	"strings"
)

// leftOut begins a line of a page that stands for any number of lines.
const leftOut = "…"

// differing is what differs from run to run: times, durations, ages, versions of Kubernetes, uids,
// and resourceVersions, which have more digits than anything that a page counts.
var differing = regexp.MustCompile(`(?P<time>\b\d{4}-\d\d-\d\dT[\d:.]+Z)|(?P<uid>\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b)|` +
	`(?P<kubernetes>\bv\d+\.\d+\.\d+\b)|(?P<duration>\b\d+\.\d s\b)|(?P<age>\b(?:\d+[dhms])+\b)|(?P<revision>\b\d{3,}\b)`)

// ways are how each of these may look, in the order of the groups. The last field means that it
// stands for the same wherever the page repeats it, as one uid does.
var ways = []struct {
	pattern string
	isOne   bool
}{
	{`\d{4}-\d\d-\d\dT[\d:.]+Z`, false},
	{`[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}`, true},
	{`v\d+\.\d+\.\d+\S*`, true},
	{`\d+\.\d s`, false},
	{`(?:\d+[dhms])+`, false},
	{`\d+`, true},
}

// Meanings are what the uids and versions of a page are in this run.
type Meanings map[string]string

// Agree compares what a command printed with what the page shows: in all words, but not in the
// space between them. A line of the page that begins with … stands for any number of lines. It
// returns the meanings with those that are new, or how many lines of the page agree at most.
func (m Meanings) Agree(page, came []string) (with Meanings, lines int, isSame bool) {
	page, came = trim(page), trim(came)
	switch {
	case len(page) == 0 && len(came) == 0:
		return m, 0, true
	case len(page) == 0:
		return nil, 0, false
	}
	if strings.HasPrefix(strings.TrimSpace(page[0]), leftOut) {
		for skipped := range len(came) + 1 {
			with, more, isSame := m.Agree(page[1:], came[skipped:])
			lines = max(lines, 1+more)
			if isSame {
				return with, lines, true
			}
		}
		return nil, lines, false
	}
	if len(came) == 0 {
		return nil, 0, false
	}
	with = m.agreeInLine(page[0], came[0])
	if with == nil {
		return nil, 0, false
	}
	with, lines, isSame = with.Agree(page[1:], came[1:])
	return with, 1 + lines, isSame
}

// trim removes the empty lines at the beginning and the end.
func trim(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// agreeInLine returns nil if a line is another one.
func (m Meanings) agreeInLine(page, came string) Meanings {
	page, came = strings.Join(strings.Fields(page), " "), strings.Join(strings.Fields(came), " ")
	var pattern strings.Builder
	at := 0
	var repeated []string // what the page has for each group of the pattern
	for _, found := range differing.FindAllStringSubmatchIndex(page, -1) {
		pattern.WriteString(regexp.QuoteMeta(page[at:found[0]]))
		at = found[1]
		for i, way := range ways {
			switch {
			case found[2*i+2] < 0:
			case way.isOne:
				pattern.WriteString("(" + way.pattern + ")")
				repeated = append(repeated, page[found[0]:found[1]])
			default:
				pattern.WriteString(way.pattern)
			}
		}
	}
	values := regexp.MustCompile("^" + pattern.String() + regexp.QuoteMeta(page[at:]) + "$").FindStringSubmatch(came)
	if values == nil {
		return nil
	}
	with := maps.Clone(m)
	for i, name := range repeated {
		if known, isKnown := with[name]; isKnown && known != values[i+1] {
			return nil
		}
		with[name] = values[i+1]
	}
	return with
}
