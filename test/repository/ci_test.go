package repository_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
)

var (
	ciStep    = regexp.MustCompile(`(?m)^step make ([a-z-]+)|"make ([a-z-]+)`)
	ofVerify  = regexp.MustCompile(`(?m)^CHECKS := (.*)$`)
	testRule  = regexp.MustCompile(`(?m)^test: ([a-z ]+) ##`)
	ciVerifys = regexp.MustCompile(`checks=\$\(make --no-print-directory checks\)\n.*\$checks`)
)

// TestCIRunsTheDocumentedTargets: the targets that the READMEs and the tutorials have people type.
func TestCIRunsTheDocumentedTargets(t *testing.T) {
	o := newOurs(t)
	ci := o.read(".ci", "run")
	require.Regexp(t, ciVerifys, ci)
	var runs []string
	for _, found := range ciStep.FindAllStringSubmatch(ci, -1) {
		runs = append(runs, found[1]+found[2])
	}
	for _, list := range []*regexp.Regexp{ofVerify, testRule} {
		found := list.FindStringSubmatch(o.makefile)
		require.NotNil(t, found)
		runs = append(runs, strings.Fields(found[1])...)
	}
	var documented []string
	for _, pattern := range []string{"README.md", "*/README.md", "docs/tutorials/*.md", "*/docs/tutorial.md"} {
		found, err := filepath.Glob(filepath.Join(o.root, filepath.FromSlash(pattern)))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		documented = append(documented, found...)
	}
	runs = append(runs, o.walked(runs)...)
	targets := 0
	for _, page := range documented {
		commands, err := pages.Commands(page)
		require.NoError(t, err)
		for _, c := range commands {
			if c.Words[0] != "make" || c.Named {
				continue
			}
			for _, target := range c.Words[1:] {
				if !strings.Contains(target, "=") {
					targets++
					assert.Contains(t, runs, target, "%s:%d", page, c.Line)
				}
			}
		}
	}
	assert.Greater(t, targets, 5)
}

// walked returns the targets that the README has a newcomer make who has Go alone: test/walk makes
// them, and CI begins with it.
func (o *ours) walked(runs []string) []string {
	o.t.Helper()
	require.Contains(o.t, runs, "walk")
	blocks, _ := pages.Parse(pages.Section(o.read("README.md"), pages.GoAlone))
	require.NotEmpty(o.t, blocks)
	var targets []string
	for _, step := range blocks[0].Steps() {
		targets = append(targets, strings.TrimPrefix(step.Command(), "make "))
	}
	require.GreaterOrEqual(o.t, len(targets), 2)
	return targets
}
