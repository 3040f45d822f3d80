package repository_test

import (
	"os"
	"path/filepath"
	"regexp"
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
)

// The programs in the image of the demo, besides those of the control plane.
var (
	inTheImage   = regexp.MustCompile(`(?m)^DEMO_PROGRAMS := (.*)$`)
	inTheRelease = regexp.MustCompile(`append\(\[\]string\{demo, (.*)\}, slices`)
)

// TestEveryServiceHasAnImage compares the images of make images with those of a release.
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
	var services []string
	for program := range strings.FieldsSeq(found[1]) {
		services = append(services, filepath.Base(program))
	}
	require.Contains(t, services, "watcher")

	found = ofTheRelease.FindStringSubmatch(read("hack", "release", "release.go"))
	require.NotNil(t, found)
	assert.Equal(t, services, strings.Split(strings.ReplaceAll(found[1], `"`, ""), ", "), "those of a release")

	demo := inTheImage.FindStringSubmatch(read("Makefile"))
	require.NotNil(t, demo)
	found = inTheRelease.FindStringSubmatch(read("hack", "release", "release.go"))
	require.NotNil(t, found)
	assert.Equal(t, strings.Fields(demo[1]), append([]string{"demo"}, strings.Split(strings.ReplaceAll(found[1], `"`, ""), ", ")...), "the demo of a release")
}

// action is what a workflow calls, with its version.
var action = regexp.MustCompile(`(?m)^[ -]*uses: (\S+)`)

// TestActionsArePinned: a tag can be moved to other code, which would run with our rights.
func TestActionsArePinned(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	workflows, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yaml"))
	require.NoError(t, err)
	all := 0
	for _, workflow := range workflows {
		content, err := os.ReadFile(workflow)
		require.NoError(t, err)
		for _, called := range firstGroups(action, string(content)) {
			all++
			assert.Regexp(t, `@[0-9a-f]{40}$`, called, workflow)
		}
	}
	assert.Greater(t, all, len(workflows))
}

func firstGroups(pattern *regexp.Regexp, text string) []string {
	var groups []string
	for _, found := range pattern.FindAllStringSubmatch(text, -1) {
		groups = append(groups, found[1])
	}
	return groups
}
