package cluster_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// leftOut begins a line of a page that stands for any number of lines.
const leftOut = "…"

// differing is what differs from run to run: times, ages, versions of Kubernetes, uids, and
// resourceVersions, which have more digits than anything that a page counts.
var differing = regexp.MustCompile(`(?P<time>\b\d{4}-\d\d-\d\dT[\d:.]+Z)|(?P<uid>\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b)|` +
	`(?P<kubernetes>\bv\d+\.\d+\.\d+\b)|(?P<age>\b(?:\d+[dhms])+\b)|(?P<revision>\b\d{3,}\b)`)

// ways are how each of these may look, in the order of the groups. The last field says that it
// stands for the same wherever the page repeats it, as one uid does.
var ways = []struct {
	pattern string
	isOne   bool
}{
	{`\d{4}-\d\d-\d\dT[\d:.]+Z`, false},
	{`[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}`, true},
	{`v\d+\.\d+\.\d+\S*`, true},
	{`(?:\d+[dhms])+`, false},
	{`\d+`, true},
}

// meanings are what the uids and versions of a page are in this run.
type meanings map[string]string

// agree compares what a command printed with what the page shows: in all words, but not in the
// space between them. It returns the meanings with those that are new, or how many lines of the
// page agree at most.
func (m meanings) agree(page, came []string) (with meanings, lines int, isSame bool) {
	page, came = trim(page), trim(came)
	switch {
	case len(page) == 0 && len(came) == 0:
		return m, 0, true
	case len(page) == 0:
		return nil, 0, false
	}
	if strings.HasPrefix(strings.TrimSpace(page[0]), leftOut) {
		for skipped := range len(came) + 1 {
			with, more, isSame := m.agree(page[1:], came[skipped:])
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
	with, lines, isSame = with.agree(page[1:], came[1:])
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
func (m meanings) agreeInLine(page, came string) meanings {
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

func TestOutputIsComparedWithThatOfAPage(t *testing.T) {
	lines := func(text string) []string { return strings.Split(text, "\n") }
	for name, tc := range map[string]struct {
		page, came string
		lines      int
		isSame     bool
	}{
		"the same":                     {"NAME  STATUS\nnode1 Ready\n", "NAME    STATUS  \nnode1   Ready", 2, true},
		"another state":                {"NAME  STATUS\nnode1 Ready", "NAME STATUS\nnode1 NotReady", 1, false},
		"another role":                 {"node1 Ready <none>", "node1 Ready gpu", 0, false},
		"a line more":                  {"a\nb", "a\nb\nc", 2, false},
		"a line less":                  {"a\nb", "a", 1, false},
		"other ages and versions":      {"node1 44s v1.36.3 430", "node1 2m3s v1.40.0+k3s1 51234", 1, true},
		"other counts":                 {"Saved 7 labels, version 430.", "Saved 8 labels, version 512.", 0, false},
		"a version that is another":    {"version 430\nversion 430", "version 7\nversion 8", 1, false},
		"a version that is the same":   {"version 430\n1a.430 \"430\"", "version 7\n1a.7 \"7\"", 2, true},
		"another uid and time":         {"75f14f33-9e55-4c2d-9c66-05310719479c: \"2026-11-25T02:20:13Z\"", "00000f33-9e55-4c2d-9c66-05310719479c: \"2027-01-01T00:00:00Z\"", 1, true},
		"what is left out":             {"a\n… more …\nd\n…", "a\nb\nc\nd\ne\nf", 4, true},
		"nothing is left out":          {"a\n  …\nd\n…", "a\nd", 4, true},
		"not what follows it":          {"a\n…\nd", "a\nb\nc", 2, false},
		"a label that is another":      {"rack=r7", "rack=r8", 0, false},
		"a column that is empty":       {"node1 Ready r7 430", "node1 Ready 430", 0, false},
		"a meaning of a skipped match": {"…\nv 430\nw 430", "v 1\nv 2\nw 2", 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			with, agreed, isSame := meanings{}.agree(lines(tc.page), lines(tc.came))
			assert.Equal(t, tc.isSame, isSame)
			assert.Equal(t, tc.lines, agreed)
			assert.Equal(t, tc.isSame, with != nil)
		})
	}
}
