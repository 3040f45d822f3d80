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

// prompt is what begins a command of the plugin in a session.
const prompt = "$ kubectl nodekeeper "

// TestPagesShowRecordedSessions: what pages show of the plugin is in docs/cli/sessions, which the tests of the plugin record. TestTutorial
// compares the tutorial with a real cluster.
func TestPagesShowRecordedSessions(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	recorded := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, "docs", "cli", "sessions", "*.txt"))
	require.NoError(t, err)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, session := range sessionsIn(string(content)) {
			recorded[session] = true
		}
	}
	shown := 0
	for _, page := range markdown(t, root) {
		if page == "docs/tutorials/getting-started.md" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		blocks, _ := pages.Parse(string(content))
		for _, block := range blocks {
			for _, session := range sessionsIn(strings.Join(block.Lines, "\n")) {
				shown++
				assert.True(t, recorded[session], "%s:%d: this was not recorded:\n%s", page, block.Line, session)
			}
		}
	}
	assert.Positive(t, shown)
}

// sessionsIn returns the commands of the plugin in a text, each with what it prints.
func sessionsIn(text string) []string {
	var sessions []string
	for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
		if session := "$ " + strings.TrimSpace(part); strings.HasPrefix(session, prompt) {
			sessions = append(sessions, session)
		}
	}
	return sessions
}
