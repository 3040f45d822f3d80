package reference_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/test/repository"
)

var inBackticks = regexp.MustCompile("`([^`]+)`")

// The page has a reason for each default, and no reason for anything else.
func TestPageOfLabelsHasTheDefaults(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "explanation", "labels.md"))
	require.NoError(t, err)
	for head, list := range map[string]string{
		"| Default | Set by |\n":         labels.DefaultSameMachine,
		"| Ignored by default | Why |\n": labels.DefaultIgnored,
	} {
		_, table, found := strings.Cut(string(page), head)
		require.True(t, found, head)
		table, _, _ = strings.Cut(table, "\n\n")
		var documented []string
		for row := range strings.Lines(table) {
			first, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), " | ")
			for _, key := range inBackticks.FindAllStringSubmatch(first, -1) {
				documented = append(documented, key[1])
			}
		}
		slices.Sort(documented)
		assert.Equal(t, slices.Sorted(strings.SplitSeq(list, ",")), documented, head)
	}
}
