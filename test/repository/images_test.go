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
}

func firstGroups(pattern *regexp.Regexp, text string) []string {
	var groups []string
	for _, found := range pattern.FindAllStringSubmatch(text, -1) {
		groups = append(groups, found[1])
	}
	return groups
}
