package repository_test

import (
	"io/fs"
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
	// quote matches a span of code that reads like a message: three words or more.
	quote = regexp.MustCompile("`([A-Za-z][^` ]* [^` ]+ [^`]+)`")
	// filledIn is what a message has for a verb of its format: a name in capitals, a duration or a
	// number, or at its end the name of a program or an object.
	filledIn = regexp.MustCompile(`\b[A-Z]{4,}\b|\b\d+[a-z]*\b|\b(watcher|processor|nodekeeper)$`)
	// joined is where a literal goes on in the next line.
	joined = regexp.MustCompile(`" \+\s*"`)
	verbs  = regexp.MustCompile(`%[a-z]`)
)

// notOurs are messages of Kubernetes, and commands.
var notOurs = regexp.MustCompile(`^(kubectl|kubelet|install|is not allowed to set the following labels)\b`)

// TestTroubleshootingQuotesThePrograms: people search for what they see, so every message on the
// page is one of the code.
func TestTroubleshootingQuotesThePrograms(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	var code strings.Builder
	for _, dir := range []string{"cmd", "internal", "deploy", "sharding"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			isCode := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".yaml")
			if err != nil || entry.IsDir() || !isCode {
				return err
			}
			content, err := os.ReadFile(path)
			_, _ = code.Write(content)
			return err
		}))
	}
	texts := verbs.ReplaceAllString(strings.ReplaceAll(joined.ReplaceAllString(code.String(), ""), `\"`, `"`), "\x00")
	checked := 0
	for _, line := range prose(t, filepath.Join(root, "docs", "troubleshooting.md")) {
		for _, found := range quote.FindAllStringSubmatch(line, -1) {
			if notOurs.MatchString(found[1]) {
				continue
			}
			checked++
			for _, part := range filledIn.Split(found[1], -1) {
				part = strings.TrimSuffix(strings.TrimSpace(part), ":")
				if !strings.Contains(texts, part) { // whose message would print all of the code
					assert.Fail(t, "docs/troubleshooting.md quotes a message that no program prints", found[1])
				}
			}
		}
	}
	assert.Greater(t, checked, 20)
}
