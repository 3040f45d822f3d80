package kubectl

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Sessions collects commands with their output, by name, in a form that is the same in every run.
type Sessions struct {
	texts          map[string]*strings.Builder
	uids, versions map[string]string
	build          string
}

// NewSessions returns Sessions without any. Build is the version of the plugin.
func NewSessions(build string) *Sessions {
	return &Sessions{texts: map[string]*strings.Builder{}, uids: map[string]string{}, versions: map[string]string{}, build: build}
}

// Add adds a command and its output to a session.
func (s *Sessions) Add(session, line, printed string, code int) {
	if s.texts[session] == nil {
		s.texts[session] = &strings.Builder{}
	}
	text := "$ " + line + "\n" + printed
	if code != 0 {
		text += fmt.Sprintf("$ echo $?\n%d\n", code)
	}
	s.texts[session].WriteString(trimmed(s.Normalize(text)))
}

// All returns the sessions by name.
func (s *Sessions) All() map[string]string {
	all := map[string]string{}
	for name, text := range s.texts {
		all[name] = text.String()
	}
	return all
}

// trimmed removes the spaces at the ends of lines.
func trimmed(text string) string {
	var shown strings.Builder
	for line := range strings.Lines(text) {
		shown.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return shown.String()
}

// LinkPattern matches a link to the live page.
var LinkPattern = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=\w{52}\b`)

var (
	uidPattern     = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	timePattern    = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	clockPattern   = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3}\b`)
	agePattern     = regexp.MustCompile(`\b(?:[2-9]m)?\d{1,3}s( *)`) // on a busy machine more than two minutes, as kubectl prints them
	versionPattern = regexp.MustCompile(`\b[1-9]\d{3}\b`)
)

// Normalize replaces values that differ from run to run: uids, resourceVersions of four digits, times
// and the version of the build. All other text keeps its width.
func (s *Sessions) Normalize(text string) string {
	text = strings.ReplaceAll(text, s.build, "v1.2.3")
	text = strings.ReplaceAll(text, `version: "v1.2.3"`, "version: v1.2.3") // YAML quotes versions that look like numbers
	text = LinkPattern.ReplaceAllString(text, "http://127.0.0.1:41871/?token="+strings.Repeat("K7Q2MX5VJA4TN", 4))
	text = uidPattern.ReplaceAllStringFunc(text, func(uid string) string {
		return standIn(s.uids, uid, "%08x-0b1c-4bb5-8a43-6a1f2ac1d7a1")
	})
	text = timePattern.ReplaceAllString(text, "TIME")
	text = clockPattern.ReplaceAllString(text, "03:14:15.926")
	text = agePattern.ReplaceAllStringFunc(text, func(age string) string {
		if !strings.HasSuffix(age, "  ") {
			return "5s" + strings.Repeat(" ", strings.Count(age, " "))
		}
		return fmt.Sprintf("%-*s", len(age), "5s") // a cell of a table
	})
	text = versionPattern.ReplaceAllStringFunc(text, func(version string) string { return standIn(s.versions, version, "%d") })
	return strings.ReplaceAll(text, "TIME", "2026-11-21T03:14:15Z")
}

// standIn returns the replacement of a value, which is the same each time.
func standIn(all map[string]string, value, format string) string {
	const first = 2571
	if all[value] == "" {
		all[value] = fmt.Sprintf(format, first+len(all))
	}
	return all[value]
}

// Golden compares got with a file of the package's tests, or writes the file if update is set.
func Golden(t *testing.T, path, got string, update bool) {
	t.Helper()
	if update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "write it by the flag -update of this test")
	assert.Equal(t, string(want), got, "%s; if that is right, run this test with -update, and make generate", path)
}
