package repository_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/repository"
)

// TestREADMEShowsRecordedSessions: what the README shows of the plugin is in docs/cli/sessions, which
// the tests of the plugin record.
func TestREADMEShowsRecordedSessions(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	var sessions strings.Builder
	files, err := filepath.Glob(filepath.Join(root, "docs", "cli", "sessions", "*.txt"))
	require.NoError(t, err)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		_, _ = sessions.WriteString(strings.TrimSpace(string(content)) + "\n$ ") // a Builder never fails
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	shown := 0
	blocks, _ := pages.Parse(string(readme))
	for _, block := range blocks {
		if text := strings.Join(block.Lines, "\n"); strings.HasPrefix(text, "$ kubectl nodekeeper ") {
			shown++
			assert.Contains(t, sessions.String(), text+"\n$ ", "README.md:%d", block.Line)
		}
	}
	assert.Positive(t, shown)
}
