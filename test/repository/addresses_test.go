package repository_test

import (
	"bufio"
	"bytes"
	"maps"
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

var (
	// setting is a line of project.mk.
	setting = regexp.MustCompile(`(?m)^([A-Z]+) := (\S+)$`)
	// An address of ours in a file: the site, whose host is the domain of label keys; the sources;
	// an image in a registry.
	ourAddress = regexp.MustCompile(`https?://nodekeeper\.dev[^\s"')]*|\b(?:https?://)?github\.com/[\w.-]+/nodekeeper\b|` +
		`\b[\w-]+(?:\.[\w-]+)+(?::\d+)?/(?:[\w.-]+/)*nodekeeper-(?:watcher|processor|webhook|ui|sharder|placement|demo)\b`)
	// example matches what stands for any registry or address.
	example = regexp.MustCompile(`^(https?://)?([\w-]+\.)*example\.com[/:]`)
)

// runbooks are the files that spell the site, because they are applied as they are: make generate
// writes it into the first of each product, and copies that for the chart.
var runbooks = []string{
	"deploy/monitoring/rules.yaml", "deploy/chart/nodekeeper/files/rules.yaml",
	"placement/deploy/monitoring/rules.yaml", "placement/deploy/chart/placement/files/rules.yaml",
	"sharding/deploy/monitoring/rules.yaml", "sharding/deploy/chart/sharder/files/rules.yaml",
}

// ourPage matches a page of the site, after the address of that.
var ourPage = regexp.MustCompile(`^/((sharding|placement)/)?docs/`)

// insights is read by tools, which resolve no variables.
const insights = ".github/security-insights.yml"

// TestAddressesAreInOnePlace: the site, the sources and the registry are spelled in project.mk
// alone.
func TestAddressesAreInOnePlace(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	settings := settingsOf(t, root)
	urls := 0
	for name, content := range filesOf(t, root) {
		if name == "project.mk" || name == insights || strings.HasPrefix(name, "test/repository/") {
			continue // where they belong
		}
		if !slices.Contains(runbooks, name) {
			assert.Empty(t, strays(content, settings), "%s spells addresses of project.mk", name)
			continue
		}
		for line := range strings.Lines(string(content)) {
			if _, url, found := strings.Cut(strings.TrimSpace(line), "runbook_url: "); found {
				urls++
				page, isOurs := strings.CutPrefix(url, settings["HOMEPAGE"])
				assert.True(t, isOurs && ourPage.MatchString(page), "%s: %s: run make generate", name, url)
			} else {
				assert.Empty(t, strays([]byte(line), settings), name)
			}
		}
	}
	assert.Greater(t, urls, 40)
}

// TestSecurityInsightsNameFilesOfThisRepository: each address is one of project.mk, and each file
// exists.
func TestSecurityInsightsNameFilesOfThisRepository(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	settings := settingsOf(t, root)
	content, err := os.ReadFile(filepath.Join(root, insights))
	require.NoError(t, err)
	files := 0
	for _, found := range regexp.MustCompile(`: (https://\S+)`).FindAllSubmatch(content, -1) {
		rest, isOurs := strings.CutPrefix(string(found[1]), settings["REPOSITORY"])
		if !isOurs {
			assert.Equal(t, settings["HOMEPAGE"], string(found[1]))
			continue
		}
		if file, isFile := strings.CutPrefix(rest, "/blob/main/"); isFile {
			assert.FileExists(t, filepath.Join(root, file))
			files++
		}
	}
	assert.Greater(t, files, 10)
}

// settingsOf returns what project.mk sets.
func settingsOf(t *testing.T, root string) map[string]string {
	t.Helper()
	project, err := os.ReadFile(filepath.Join(root, "project.mk"))
	require.NoError(t, err)
	settings := map[string]string{}
	for _, found := range setting.FindAllStringSubmatch(string(project), -1) {
		settings[found[1]] = found[2]
	}
	require.ElementsMatch(t, []string{"HOMEPAGE", "REPOSITORY", "REGISTRY", "MODULE"}, slices.Collect(maps.Keys(settings)))
	return settings
}

// filesOf returns the files of a repository by their names: those that Git tracks, or would if
// asked to add all.
func filesOf(t *testing.T, root string) map[string][]byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	require.NoError(t, err)
	files := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted and not committed
		}
		require.NoError(t, err)
		files[name] = content
	}
	return files
}

// strays returns the addresses in a file. The path of the module is none, even where it is the
// address of the sources.
func strays(content []byte, settings map[string]string) []string {
	var found []string
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		for _, address := range ourAddress.FindAllString(lines.Text(), -1) {
			if !example.MatchString(address) && !strings.HasPrefix(settings["MODULE"]+"/", address+"/") {
				found = append(found, address)
			}
		}
		for name, address := range settings {
			if name != "MODULE" && strings.Contains(lines.Text(), address) {
				found = append(found, address)
			}
		}
	}
	return found
}

func TestStraysAreFound(t *testing.T) {
	settings := map[string]string{"HOMEPAGE": "https://docs.example.org", "MODULE": "github.com/our/nodekeeper/v2"}
	for text, want := range map[string]int{
		"see https://nodekeeper.dev/docs":                                        1,
		"git clone https://github.com/somebody/nodekeeper":                       1,
		"image: ghcr.io/nodekeeper/nodekeeper-watcher:v1":                        1,
		"image: localhost.local:5000/nodekeeper-sharder":                         1,
		"see https://docs.example.org/x":                                         1,
		"image: nodekeeper-watcher:dev":                                          0,
		"newName: registry.example.com/a/nodekeeper-watcher":                     0,
		"see https://github.com/our/nodekeeper":                                  1,
		`import "github.com/our/nodekeeper/v2/internal/version"`:                 0,
		"the label nodekeeper.dev/ring and the group sharding.nodekeeper.dev/v1": 0,
		"bin/images/nodekeeper-watcher.tar":                                      0,
	} {
		assert.Len(t, strays([]byte(text), settings), want, text)
	}
}
