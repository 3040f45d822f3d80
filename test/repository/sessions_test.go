package repository_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/repository"
)

// prompts begin the commands of the plugins in a session.
var prompts = []string{"$ kubectl nodekeeper ", "$ kubectl rings "}

// ringsPage is the page of kubectl rings, which sharding/test/plugin writes.
const ringsPage = "sharding/docs/cli.md"

// typed are the pages that test/cluster types in a real cluster, and ringsPage.
var typed = []string{"docs/tutorials/getting-started.md", "docs/tutorials/demo-image.md", "docs/tutorials/install-a-release.md", ringsPage}

// TestPagesShowRecordedSessions checks that the sessions of the plugins on all pages are recorded: in docs/cli/sessions by
// test/plugin, or on ringsPage.
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
	for _, session := range sessionsOn(t, root, ringsPage) {
		recorded[session] = true
	}
	shown := 0
	for _, page := range markdown(t, root) {
		if slices.Contains(typed, page) {
			continue
		}
		for line, session := range sessionsOn(t, root, page) {
			shown++
			assert.True(t, recorded[session], "%s: this was not recorded:\n%s", line, session)
		}
	}
	assert.Positive(t, shown)
}

// sessionsOn returns the sessions on a page, by their lines.
func sessionsOn(t *testing.T, root, page string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	sessions := map[string]string{}
	blocks, _ := pages.Parse(string(content))
	for _, block := range blocks {
		for i, session := range sessionsIn(strings.Join(block.Lines, "\n")) {
			sessions[fmt.Sprintf("%s:%d, command %d", page, block.Line, i+1)] = session
		}
	}
	return sessions
}

// sessionsIn returns the commands of the plugins in a text, each with its output.
func sessionsIn(text string) []string {
	var sessions []string
	for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
		if session := "$ " + strings.TrimSpace(part); slices.ContainsFunc(prompts, func(prompt string) bool { return strings.HasPrefix(session, prompt) }) {
			sessions = append(sessions, session)
		}
	}
	return sessions
}
