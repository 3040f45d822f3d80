package repository_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	ciStep    = regexp.MustCompile(`(?m)^(?:step )?make ([a-z-]+)`)
	ofVerify  = regexp.MustCompile(`(?m)^CHECKS := (.*)$`)
	testRule  = regexp.MustCompile(`(?m)^test: ([a-z ]+) ##`)
	ciVerifys = regexp.MustCompile(`checks=\$\(make --no-print-directory checks\)\nfor check in \$checks; do`)
)

// TestCIRunsWhatPeopleAreToldToMake: the targets that the README and the tutorials have people
// type.
func TestCIRunsWhatPeopleAreToldToMake(t *testing.T) {
	o := newOurs(t)
	ci := o.read(".ci", "run")
	require.Regexp(t, ciVerifys, ci)
	runs := firstGroups(ciStep, ci)
	for _, list := range []*regexp.Regexp{ofVerify, testRule} {
		found := list.FindStringSubmatch(o.makefile)
		require.NotNil(t, found)
		runs = append(runs, strings.Fields(found[1])...)
	}
	pages, err := filepath.Glob(filepath.Join(o.root, "docs", "tutorials", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	targets := 0
	for _, page := range append(pages, filepath.Join(o.root, "README.md"), filepath.Join(o.root, "docs", "sharding", "tutorial.md")) {
		for _, c := range commandsOn(t, page) {
			if c.words[0] != "make" || c.isNamed {
				continue
			}
			for _, target := range c.words[1:] {
				if !strings.Contains(target, "=") {
					targets++
					assert.Contains(t, runs, target, "%s:%d", page, c.line)
				}
			}
		}
	}
	assert.Greater(t, targets, 5)
}
