package repository_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path"
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
	// stored matches what clusters store: label keys, API groups, and the domain of both.
	stored = regexp.MustCompile(`[\w.-]*nodekeeper\.dev(?:/[\w.-]*)?`)
	// importLine matches an import of Go, alone or in a group.
	importLine = regexp.MustCompile(`(?m)^(?:import )?\t?(?:[\w.]+ )?"[^"]+"(?: //.*)?$`)
)

// TestModulePathIsThatOfProject: each module has the path that project.mk and its directory define.
func TestModulePathIsThatOfProject(t *testing.T) {
	t.Parallel()
	root, err := repository.Root()
	require.NoError(t, err)
	checkModules(t, filesOf(t, root), settingsOf(t, root)["MODULE"])
}

// TestNoKeyIsAnImportPath: while keys and imports begin with the same domain, hack/module
// distinguishes them by the folder at which an import continues.
func TestNoKeyIsAnImportPath(t *testing.T) {
	t.Parallel()
	root, err := repository.Root()
	require.NoError(t, err)
	files, module := filesOf(t, root), settingsOf(t, root)["MODULE"]
	imported := importedIn(module, files)
	for name, content := range files {
		if !linterOrModule(name) && bytes.Contains(content, []byte(module)) {
			assert.Empty(t, ambiguous(string(content), imported), "%s: a key, or an import without a package?", name)
		}
	}
}

func TestAmbiguousKeysAreFound(t *testing.T) {
	t.Parallel()
	const module = "example.org/keeper"
	imported := importedIn(module, map[string][]byte{"go.mod": nil, "test/x/x.go": nil, "tools/go.mod": nil, "docs/README.md": nil})
	for text, want := range map[string]int{
		"the label " + module + "/test is":                      1,
		"label: {" + module + "/test: x, " + module + "/tools}": 2,
		"\t\"" + module + "/test\",\n":                          1,
		"the taint " + module + "/test-node":                    1,
		"import \"" + module + "/test\"\n":                      0,
		"import (\n\tx \"" + module + "/test\"\n)":              0,
		"the package " + module + "/test/x":                     0,
		"the label " + module + "/docs":                         0,
		"the group a." + module + "/test":                       0,
		"see https://" + module + "/test":                       0,
	} {
		assert.Len(t, ambiguous(text, imported), want, text)
	}
}

// TestRepositoryFollowsTheModulePath: after a change of MODULE, hack/module changes every place
// that names the path, and nothing else.
func TestRepositoryFollowsTheModulePath(t *testing.T) {
	t.Parallel()
	root, err := repository.Root()
	require.NoError(t, err)
	dir, first := copyOf(t, root), settingsOf(t, root)["MODULE"]
	run(t, dir, "git", "init", "--quiet")
	run(t, dir, "git", "add", "--all")
	run(t, dir, "hack/module", first)
	require.Empty(t, run(t, dir, "git", "diff", "--name-only"), "without a change of project.mk")
	for _, bad := range []string{"keeper", "example.org/", "example.org/a b", "https://example.org", ""} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "hack", "module"), bad)
		cmd.Env = withoutGit(os.Environ())
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%q: %s", bad, out)
		require.Empty(t, run(t, dir, "git", "diff", "--name-only"), bad)
	}

	previous := first
	for _, next := range []string{"example.org/keeper", "example.org/keeper/v2", first} {
		before := filesOf(t, dir)
		project := strings.Replace(string(before["project.mk"]), "\nMODULE := "+previous+"\n", "\nMODULE := "+next+"\n", 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "project.mk"), []byte(project), 0o600))
		run(t, dir, "hack/module", next)
		checkFollowed(t, before, filesOf(t, dir), previous, next)
		if path.Base(next) == "v2" { // once: it takes seconds
			assert.Empty(t, run(t, dir, "git", "diff", "--name-only", "--", "deploy"))
			checkImports(t, dir, first, next)
		}
		previous = next
	}
	assert.Empty(t, run(t, dir, "git", "diff", "--name-only"), "there and back again")
}

// checkFollowed compares the files before and after the path became another.
func checkFollowed(t *testing.T, before, after map[string][]byte, previous, next string) {
	t.Helper()
	checkModules(t, after, next)
	wasUsed, isUsed := pathIn(previous, before), pathIn(next, after)
	all := 0
	for name, content := range before {
		was, is := string(content), string(after[name])
		if name == "project.mk" || was == is && !strings.Contains(was, previous) {
			continue
		}
		assert.Empty(t, wasUsed.FindString(is), "%s: %s is left", name, previous)
		used := len(wasUsed.FindAllString(was, -1))
		assert.Len(t, isUsed.FindAllString(is, -1), used, "%s: uses of %s", name, next)
		if linterOrModule(name) {
			assert.Equal(t, strings.Count(was, previous), strings.Count(is, next), name)
		}
		assert.Equal(t, storedIn(was, wasUsed), storedIn(is, isUsed), "%s: what clusters store", name)
		all += used
	}
	assert.Greater(t, all, 1000)
	assert.Equal(t, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
}

// checkModules checks the path of each module.
func checkModules(t *testing.T, files map[string][]byte, module string) {
	t.Helper()
	for name, content := range files {
		if path.Base(name) == "go.mod" {
			want := "module " + path.Join(module, path.Dir(name))
			assert.Equal(t, want, strings.SplitN(string(content), "\n", 2)[0], "%s: run hack/module", name)
		}
	}
}

// checkImports looks for the packages of all modules, offline: only those of others may be missing.
func checkImports(t *testing.T, dir, previous, next string) {
	t.Helper()
	for name := range filesOf(t, dir) {
		if path.Base(name) != "go.mod" {
			continue
		}
		packages := run(t, filepath.Join(dir, path.Dir(name)), "go", "list", "-e", "-deps", "-test",
			"-f", "{{.ImportPath}}{{with .Error}}: {{.}}{{end}}", "./...")
		for line := range strings.Lines(packages) {
			pkg, problem, isMissing := strings.Cut(strings.TrimSpace(line), ": ")
			if strings.HasPrefix(pkg, previous+"/") && !strings.HasPrefix(pkg, next+"/") || strings.HasPrefix(pkg, next+"/") && isMissing {
				assert.Fail(t, "wrong import", "%s: %s: %s", name, pkg, problem)
			}
		}
	}
}

// pathIn matches a path of the module with what shows that it is no key: a folder with Go code, or
// the syntax of go.mod or of the linter's settings.
func pathIn(module string, files map[string][]byte) *regexp.Regexp {
	p := regexp.QuoteMeta(module)
	return regexp.MustCompile(`(?m)(?:^|[^\w./-])` + p + `(?:/` + foldersIn(files) + `\b| =>| v\d)|` +
		`^module ` + p + `$|prefix\(` + p + `\)|pkg: ` + p + `/,`)
}

// foldersIn returns a pattern that matches the folders at the root that hold Go code.
func foldersIn(files map[string][]byte) string {
	folders := map[string]bool{}
	for name := range files {
		if folder, _, isNested := strings.Cut(name, "/"); isNested && (path.Ext(name) == ".go" || path.Base(name) == "go.mod") {
			folders[folder] = true
		}
	}
	return "(?:" + strings.Join(slices.Sorted(maps.Keys(folders)), "|") + ")"
}

// importedIn matches the path with a folder, where no other follows: a key has one slash only.
func importedIn(module string, files map[string][]byte) *regexp.Regexp {
	return regexp.MustCompile(`(?m)(?:^|[^\w./-])` + regexp.QuoteMeta(module) + `/` + foldersIn(files) + `\b(?:[^/]|$)`)
}

// ambiguous returns what begins like an import and can be a key.
func ambiguous(content string, imported *regexp.Regexp) []string {
	return imported.FindAllString(importLine.ReplaceAllString(content, ""), -1)
}

// storedIn returns what a file spells of what clusters store, and how often.
func storedIn(content string, used *regexp.Regexp) map[string]int {
	found := map[string]int{}
	for _, name := range stored.FindAllString(used.ReplaceAllString(content, " "), -1) {
		found[name]++
	}
	return found
}

// linterOrModule reports whether each mention of our domain in a file is the module.
func linterOrModule(name string) bool {
	return name == ".golangci.yaml" || path.Base(name) == "go.mod"
}

// copyOf copies the files of the repository, with uncommitted changes, and returns their directory.
func copyOf(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range filesOf(t, root) {
		info, err := os.Stat(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, info.Mode()))
	}
	return dir
}

// withoutGit removes what Git sets for a hook: it would name the repository that the hook is of.
func withoutGit(env []string) []string {
	return slices.DeleteFunc(env, func(setting string) bool { return strings.HasPrefix(setting, "GIT_") })
}

// run runs a command offline, and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(withoutGit(os.Environ()), "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off", "MAKEFLAGS=")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.NoError(t, err, "%s %s:\n%s%s", name, strings.Join(args, " "), out, problems.String())
	return string(out)
}
