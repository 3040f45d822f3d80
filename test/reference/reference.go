// Package reference checks the pages of reference against the programs themselves. A block of a
// page that a program knows stands between two comments; a test with -update-reference writes it.
package reference

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

var update = flag.Bool("update-reference", false, "write the blocks of the pages of reference")

// Check compares a block of a page, which stands between <!-- begin NAME --> and <!-- end NAME -->.
// The page is a path in the repository.
func Check(t *testing.T, page, name, want string) {
	t.Helper()
	root, err := repository.Root()
	require.NoError(t, err)
	path := filepath.Join(root, filepath.FromSlash(page))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, hasBegin := strings.Cut(string(content), begin)
	has, after, hasEnd := strings.Cut(rest, end)
	require.True(t, hasBegin && hasEnd, "%s has no block %q", page, name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+want+end+after), 0o600))
		return
	}
	assert.Equal(t, want, has, "%s is not fresh: run the test with -update-reference", page)
}

// description is what a Desc prints. There is no other way to read it.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}`)

// Metrics returns a table of metrics.
func Metrics(t *testing.T, collectors []prometheus.Collector) string {
	t.Helper()
	var table strings.Builder
	table.WriteString("| metric | type | |\n| --- | --- | --- |\n")
	for _, c := range collectors {
		kind := "gauge"
		switch c.(type) {
		case *prometheus.CounterVec:
			kind = "counter"
		case *prometheus.HistogramVec:
			kind = "histogram"
		}
		descriptions := make(chan *prometheus.Desc, 10)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			parts := description.FindStringSubmatch(d.String())
			require.NotNil(t, parts, d.String())
			table.WriteString("| `" + parts[1] + "{" + parts[3] + "}` | " + kind + " | " + parts[2] + " |\n")
		}
	}
	return table.String()
}
