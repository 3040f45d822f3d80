package repository_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

// The services, as each place that makes images names them.
var (
	ofTheMakefile = regexp.MustCompile(`(?m)^SERVICES := (.*)$`)
	ofTheRelease  = regexp.MustCompile(`(?m)^var services = \[\]string\{(.*)\}$`)
	target        = regexp.MustCompile(`(?m)^FROM image AS (.*)$`)
	copied        = regexp.MustCompile(`(?m)^COPY --from=build /out/(\w+) /(\w+)\nENTRYPOINT \["/(\w+)"\]$`)
	built         = regexp.MustCompile(`\./cmd/(\w+)`)
)

// TestEveryServiceHasAnImage: make images, a release and the Dockerfile make the same ones, and
// docker build gets what they are built from.
func TestEveryServiceHasAnImage(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	read := func(path ...string) string {
		content, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
		require.NoError(t, err)
		return string(content)
	}
	found := ofTheMakefile.FindStringSubmatch(read("Makefile"))
	require.NotNil(t, found)
	services := strings.Fields(found[1])
	require.Contains(t, services, "watcher")

	found = ofTheRelease.FindStringSubmatch(read("hack", "release", "release.go"))
	require.NotNil(t, found)
	assert.Equal(t, services, strings.Split(strings.ReplaceAll(found[1], `"`, ""), ", "), "those of a release")

	dockerfile := read("Dockerfile")
	assert.Equal(t, services, firstGroups(target, dockerfile), "targets")
	assert.Equal(t, services, firstGroups(built, dockerfile), "programs that are built")
	for i, found := range copied.FindAllStringSubmatch(dockerfile, -1) {
		assert.Equal(t, slices.Repeat([]string{services[i]}, 3), found[1:], "the program of target %s", services[i])
	}
	assert.Len(t, copied.FindAllString(dockerfile, -1), len(services))

	sent := strings.Fields(read(".dockerignore"))
	for dir := range dirsOf(t, root, services) {
		assert.Contains(t, sent, "!"+dir, "docker build does not get %s", dir)
	}
}

func firstGroups(pattern *regexp.Regexp, text string) []string {
	var groups []string
	for _, found := range pattern.FindAllStringSubmatch(text, -1) {
		groups = append(groups, found[1])
	}
	return groups
}

// dirsOf returns the directories at the root that programs are built from.
func dirsOf(t *testing.T, root string, services []string) map[string]bool {
	t.Helper()
	args := []string{"list", "-deps", "-f", "{{if and .Module .Module.Main}}{{.Dir}}{{end}}"}
	for _, service := range services {
		args = append(args, "./cmd/"+service)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = root, &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	dirs := map[string]bool{}
	for path := range strings.SplitSeq(string(out), "\n") {
		if path, isOurs := strings.CutPrefix(path, root+"/"); isOurs {
			dir, _, _ := strings.Cut(path, "/")
			dirs[dir] = true
		}
	}
	require.Contains(t, dirs, "internal")
	return dirs
}
