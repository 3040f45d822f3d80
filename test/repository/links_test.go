package repository_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#{1,6} +(.*)$`)
	// markup is what does not count in an anchor: links, but for their texts.
	markup = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	// dropped is what GitHub leaves out of an anchor.
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestLinksOfThePagesLeadSomewhere: those within the repository, with their anchors.
func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	checked := 0
	for _, page := range markdown(t, root) {
		path := filepath.Join(root, page)
		for _, line := range prose(t, path) {
			for _, found := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
					continue
				}
				checked++
				to, anchor, _ := strings.Cut(found[1], "#")
				target := path
				if to != "" {
					target = filepath.Join(filepath.Dir(path), to)
				}
				if _, err := os.Stat(target); !assert.NoError(t, err, "%s: %s", page, found[1]) || anchor == "" {
					continue
				}
				assert.Contains(t, anchors(t, target), anchor, "%s: %s", page, found[1])
			}
		}
	}
	assert.Greater(t, checked, 100)
}

// markdown returns the paths, in the repository, of its pages.
func markdown(t *testing.T, root string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md").Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
}

// prose returns the lines of a page that are not in a block of code.
func prose(t *testing.T, path string) []string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var lines []string
	code := false
	for line := range strings.SplitSeq(string(content), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			lines = append(lines, line)
		}
	}
	return lines
}

// anchors returns those of the headings of a page, as GitHub makes them.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	var all []string
	times := map[string]int{}
	for _, line := range prose(t, path) {
		found := heading.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		text := strings.ToLower(markup.ReplaceAllString(strings.TrimSpace(found[1]), "$1"))
		anchor := strings.ReplaceAll(dropped.ReplaceAllString(text, ""), " ", "-")
		if n := times[anchor]; n > 0 {
			all = append(all, anchor+"-"+strconv.Itoa(n))
		} else {
			all = append(all, anchor)
		}
		times[anchor]++
	}
	return all
}
