package pages_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/test/pages"
)

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
		"another duration":             {"✓ it is saved   0.1 s", "✓ it is saved    12.0 s", 1, true},
		"no duration":                  {"✓ it is saved   0.1 s", "✗ it is saved (not reached)", 0, false},
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
			with, agreed, isSame := pages.Meanings{}.Agree(lines(tc.page), lines(tc.came))
			assert.Equal(t, tc.isSame, isSame)
			assert.Equal(t, tc.lines, agreed)
			assert.Equal(t, tc.isSame, with != nil)
		})
	}
}
