package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// check runs the command on a module that prints a line, against a database.
func check(t *testing.T, db string, more ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.com/prints\n\ngo 1.26.0\n")
	write(t, filepath.Join(dir, "main.go"), "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println() }\n")
	var out bytes.Buffer
	args := append([]string{"-db=" + db, "-C=" + dir, "-modfile=" + filepath.Join("..", "..", "tools", "vulncheck", "go.mod")}, more...)
	err := run(t.Context(), args, &out)
	return out.String(), err
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// database returns a directory in the form of vuln.go.dev, with one vulnerability of Go's standard library.
func database(t *testing.T, symbol string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "index", "db.json"), `{"modified": "2026-01-01T00:00:00Z"}`)
	write(t, filepath.Join(dir, "index", "modules.json"),
		`[{"path": "stdlib", "vulns": [{"id": "GO-2026-9999", "modified": "2026-01-01T00:00:00Z"}]}]`)
	write(t, filepath.Join(dir, "ID", "GO-2026-9999.json"), `{
		"schema_version": "1.3.1", "id": "GO-2026-9999", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z",
		"summary": "Made up", "database_specific": {"url": "https://pkg.go.dev/vuln/GO-2026-9999"}, "affected": [{
			"package": {"name": "stdlib", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
			"ecosystem_specific": {"imports": [{"path": "fmt", "symbols": ["`+symbol+`"]}]}}]}`)
	return "file://" + dir
}

func TestWhatIsCalledIsFound(t *testing.T) {
	out, err := check(t, database(t, "Println"))
	require.ErrorContains(t, err, "govulncheck")
	assert.Contains(t, out, "GO-2026-9999")
}

func TestWhatIsNotCalledPasses(t *testing.T) {
	_, err := check(t, database(t, "Sscan"))
	assert.NoError(t, err)
}

func TestADatabaseThatCannotBeReachedIsSaid(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()
	for _, db := range []string{gone.URL, refuses.URL} {
		out, err := check(t, db)
		require.NoError(t, err)
		assert.Contains(t, out, "SKIPPED, NOTHING WAS CHECKED")
		_, err = check(t, db, "-required")
		assert.ErrorContains(t, err, "reaching the database")
	}
}
