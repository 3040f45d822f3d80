package repository_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

var (
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	// namedTest matches a test on a page, with the folder before it if it is written as folder.Test.
	namedTest = regexp.MustCompile(`(?:([\w-]+(?:/[\w-]+)*)\.)?\b(Test[A-Z]\w*)`)
	// runPattern matches a -run pattern with the folder before it, or the pattern of a grep. It selects
	// tests by the beginnings of their names.
	runPattern = regexp.MustCompile("(?:\\./([\\w./-]+?)(?:/\\.\\.\\.)? )?(?:-run[= ]|grep -rn )(?:'([^'`]*)'|([^ `]+))")
	// reported matches a row of the page of reports, which begins with a link to the report.
	reported = regexp.MustCompile(`(?m)^\| \[[^]]*\]\(https://github\.com/([^/)]+/[^/)]+)/(?:issues|pull)/(\d+)\)`)
)

// Pages name the tests that show what they describe.
func TestTestsOnThePagesExist(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	tests := testsByFolder(t, root)
	checked := 0
	for _, page := range markdown(t, root) {
		content, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		for _, found := range runPattern.FindAllStringSubmatch(string(content), -1) {
			for _, named := range namedTest.FindAllStringSubmatch(found[2]+found[3], -1) {
				checked++
				assert.True(t, anyTest(tests, found[1], named[2], strings.HasPrefix), "%s runs a test that does not exist: %s", page, found[0])
			}
		}
		for _, named := range namedTest.FindAllStringSubmatch(runPattern.ReplaceAllString(string(content), ""), -1) {
			checked++
			assert.True(t, anyTest(tests, named[1], named[2], isEqual), "%s names a test that does not exist: %s", page, named[0])
		}
	}
	assert.Greater(t, checked, 250)
}

// testsByFolder returns the names of the tests in each folder.
func testsByFolder(t *testing.T, root string) map[string][]string {
	t.Helper()
	tests := map[string][]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		relative, _ := filepath.Rel(root, filepath.Dir(path))
		folder := filepath.ToSlash(relative)
		for _, found := range testFunction.FindAllSubmatch(content, -1) {
			tests[folder] = append(tests[folder], string(found[1]))
		}
		return err
	}))
	return tests
}

// anyTest reports whether any test below a folder, of the repository if empty, matches a name.
func anyTest(tests map[string][]string, below, name string, matches func(test, name string) bool) bool {
	for folder, names := range tests {
		isBelow := below == "" || folder == below || strings.HasPrefix(folder, below+"/")
		if isBelow && slices.ContainsFunc(names, func(test string) bool { return matches(test, name) }) {
			return true
		}
	}
	return false
}

func isEqual(test, name string) bool { return test == name }

// Each report on the page is a part of a test that has its number, and the other way round.
func TestReportsOnThePageAreTried(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "explanation", "reports.md"))
	require.NoError(t, err)
	var tried strings.Builder
	for _, name := range []string{"reports_test.go", "reportspreserved_test.go"} {
		content, err := os.ReadFile(filepath.Join(root, "test", "e2e", name))
		require.NoError(t, err)
		_, _ = tried.Write(content)
	}
	rows, all := map[string]bool{}, tried.String()
	for _, row := range reported.FindAllStringSubmatch(string(page), -1) {
		report := row[1] + "#" + row[2]
		rows[report] = true
		assert.Contains(t, all, `"`+report+": ", "no part of a test tries it")
	}
	require.Greater(t, len(rows), 25)
	for _, title := range regexp.MustCompile(`"([\w.-]+/[\w.-]+#\d+): `).FindAllStringSubmatch(all, -1) {
		assert.True(t, rows[title[1]], "the page has no row for %s", title[1])
	}
	assert.Len(t, rows, strings.Count(string(page), "\n| ["), "each row links to its report first")
}
