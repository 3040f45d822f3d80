package library

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

// TestThreeChangesShardAController covers R42: the change shown in the docs compiles in a separate
// module, before and after, and depends neither on the command line of the plugin nor on etcd.
func TestThreeChangesShardAController(t *testing.T) {
	t.Parallel()
	root, err := repository.Root()
	require.NoError(t, err)
	const daemon = "nodekeeper.dev/internal/daemon/"
	small := []string{daemon + "rewind", daemon + "shortwatch", daemon + "signal"}
	for _, page := range []string{"sharding/docs/design.md", "sharding/docs/how-to.md"} {
		before, after := diffOf(t, filepath.Join(root, page))
		assert.Equal(t, 4, strings.Count(after, "\n")-strings.Count(before, "\n"), "three changes: one adds four lines, two change one each")
		for version, run := range map[string]string{"before": before, "after": after} {
			t.Run(page+" "+version, func(t *testing.T) {
				t.Parallel()
				dir := consumer(t, root, run, version == "after")
				command(t, dir, "vet", "./...")
				deps := command(t, dir, "list", "-export", "-deps", "./...") // compiles, and links nothing
				assert.Equal(t, version == "after", strings.Contains(deps, "nodekeeper.dev/sharding/shard\n"))
				for _, unwanted := range []string{"github.com/spf13/cobra", "go.etcd.io", "k8s.io/cli-runtime"} {
					assert.NotContains(t, deps, unwanted)
				}
				for pkg := range strings.Lines(deps) {
					if pkg = strings.TrimSpace(pkg); strings.HasPrefix(pkg, "nodekeeper.dev/internal/") {
						assert.Contains(t, small, pkg, "these packages need nothing that a controller does not have already")
					}
				}
			})
		}
	}
}

// diffOf returns the function that a page changes, before and after.
func diffOf(t *testing.T, page string) (before, after string) {
	t.Helper()
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	_, diff, found := strings.Cut(string(content), "```diff\n")
	require.True(t, found, "%s has no diff", page)
	diff, _, _ = strings.Cut(diff, "```\n")
	for line := range strings.Lines(diff) {
		rest := line[min(1, len(line)-1):]
		switch line[0] {
		case '-':
			before += rest
		case '+':
			after += rest
		default:
			before, after = before+rest, after+rest
		}
	}
	return before, after
}

// consumer creates a module with a function and returns its directory.
func consumer(t *testing.T, root, run string, sharded bool) string {
	t.Helper()
	dir := t.TempDir()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	main, err := os.ReadFile("testdata/consumer/website.go.txt")
	require.NoError(t, err)
	version := func(module string) string {
		found := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(module) + ` (\S+)`).FindSubmatch(mod)
		require.NotNil(t, found, module)
		return string(found[1])
	}
	imports := []string{"context", "k8s.io/client-go/rest", "sigs.k8s.io/controller-runtime/pkg/manager"}
	if sharded {
		imports = append(imports, "nodekeeper.dev/sharding/shard", "sigs.k8s.io/controller-runtime/pkg/client")
	} else {
		imports = append(imports, "sigs.k8s.io/controller-runtime/pkg/builder")
	}
	var requires strings.Builder
	fmt.Fprintf(&requires, "module example.com/website\n\ngo 1.26.0\n\nrequire nodekeeper.dev v0.0.0\n\nreplace nodekeeper.dev => %s\n", root)
	for _, module := range []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"} {
		fmt.Fprintf(&requires, "\nrequire %s %s\n", module, version(module))
	}
	for name, content := range map[string]string{
		"go.mod": requires.String(), "go.sum": string(sums), "website.go": string(main),
		"run.go": "package main\n\nimport (\n\t\"" + strings.Join(imports, "\"\n\t\"") + "\"\n\n\tappsv1 \"k8s.io/api/apps/v1\"\n)\n\n" + run,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

// command runs the go command and returns its output. It downloads what the module cache lacks, such
// as a go.mod that nodekeeper itself never reads.
func command(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	// The flags of the Makefile, so that little is compiled again.
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath -buildvcs=false", "GOWORK=off")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.NoError(t, err, "go %s:\n%s", strings.Join(args, " "), problems.String())
	return string(out)
}
