package pages

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

var (
	// rule is one of the sharder's design, with what follows its name.
	rule = regexp.MustCompile(`(?m)^- \*\*([RF]\d+)\*\*(.*)$`)
	// shown is a row of the table of tests.
	shown = regexp.MustCompile(`(?m)^\| ([RF]\d+) \| (.*) \|$`)
	named = regexp.MustCompile("`([a-z/]+)\\.(Test\\w+)`")
)

// TestEachRuleOfTheSharderHasATest: sharding/docs/tests.md names tests that there are, for every rule of sharding/docs/design.md that is not of part
// II, and for every fault one that names it.
func TestEachRuleOfTheSharderHasATest(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	design, err := os.ReadFile(filepath.Join(root, "sharding", "docs", "design.md"))
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "sharding", "docs", "tests.md"))
	require.NoError(t, err)
	rows := map[string]string{}
	for _, row := range shown.FindAllStringSubmatch(string(page), -1) {
		assert.NotContains(t, rows, row[1], "a second row")
		rows[row[1]] = row[2]
	}
	rules := rule.FindAllStringSubmatch(string(design), -1)
	assert.Len(t, rules, 46+22)
	for _, r := range rules {
		if strings.HasPrefix(r[2], " (II)") {
			assert.NotContains(t, rows, r[1])
			continue
		}
		row, hasRow := rows[r[1]]
		if !assert.True(t, hasRow, "%s has no row", r[1]) {
			continue
		}
		delete(rows, r[1])
		tests := named.FindAllStringSubmatch(row, -1)
		assert.NotEmpty(t, tests, "%s has no test", r[1])
		isNamed := strings.HasPrefix(r[1], "R")
		for _, test := range tests {
			source := sources(t, filepath.Join(root, test[1]))
			assert.Contains(t, source, "func "+test[2]+"(t *testing.T)", "%s: package %s has no such test", r[1], test[1])
			isNamed = isNamed || regexp.MustCompile(`\b`+r[1]+`\b`).MatchString(source)
		}
		assert.True(t, isNamed, "no test names %s", r[1])
	}
	assert.Empty(t, rows, "rows of rules that there are not")
}

// sources returns the tests of a package.
func sources(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(content)
	}
	return all.String()
}
