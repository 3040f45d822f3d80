package programs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/reference"
	"nodekeeper.dev/test/repository"
)

const flagsPage = "docs/reference/flags.md"

// longest is the length up to which the page repeats a default. It describes what is longer.
const longest = 60

var (
	// fromEnvironment is a variable of the environment in a default.
	fromEnvironment = regexp.MustCompile(`\$[A-Z_]+`)
	// pageFlag is the first cell of a row: which programs have the flag, all of them if it does not
	// say, and its name.
	pageFlag = regexp.MustCompile("^(?:([a-z, ]+) )?`--?([a-z][a-z-]*)`$")
)

// TestReferenceHasTheFlagsWithTheirDefaults: of the watcher, the processor and the webhook, and no
// other ones.
func TestReferenceHasTheFlagsWithTheirDefaults(t *testing.T) {
	has := map[string]map[string]programs.Flag{} // by the name of the flag, and the program
	services := []string{"watcher", "processor", "webhook"}
	for _, program := range services {
		flags, err := programs.Flags(t.Context(), program)
		require.NoError(t, err)
		require.Contains(t, flags, "kubeconfig")
		for name, flag := range flags {
			if has[name] == nil {
				has[name] = map[string]programs.Flag{}
			}
			has[name][program] = flag
		}
	}
	var table strings.Builder
	for row := range strings.Lines(tableOfFlags(t)) {
		cells := strings.Split(strings.TrimSuffix(row, "\n"), "|")
		require.Len(t, cells, 5, row)
		if found := pageFlag.FindStringSubmatch(strings.TrimSpace(cells[1])); found != nil {
			of := services
			if found[1] != "" {
				of = strings.Split(found[1], ", ")
			}
			byDefault := strings.TrimSpace(cells[3])
			for _, program := range of {
				flag, isThere := has[found[2]][program]
				assert.True(t, isThere, "%s has no flag %s, or it has two rows", program, found[2])
				delete(has[found[2]], program)
				byDefault = onPage(t, flag, byDefault)
			}
			cells[3] = strings.TrimRight(" "+byDefault, " ") + " "
		}
		table.WriteString(strings.Join(cells, "|") + "\n")
	}
	for name, left := range has {
		for program := range left {
			assert.Fail(t, "a flag is not on the page", "%s --%s", program, name)
		}
	}
	reference.CheckPage(t, flagsPage, "flags", table.String())
}

// onPage returns the cell for the default, where the page says this of it now.
func onPage(t *testing.T, f programs.Flag, now string) string {
	t.Helper()
	isWord := slices.Contains([]string{"", "none", "every node"}, now)
	switch {
	case f.Name == "version": // it does something else
		return ""
	case f.Default == "" && f.IsSwitch:
		return "`false`"
	case f.Default == "" && strings.Contains(f.Usage, "0 "): // which says what 0 means
		return "`0`"
	case f.Default == "" && isWord:
		return now
	case f.Default == "":
		return "none"
	case len(f.Default) > longest:
		assert.Greater(t, len(strings.Fields(now)), 2, "%s describes the default of --%s in words", flagsPage, f.Name)
		return now
	case fromEnvironment.MatchString(f.Default):
		return fromEnvironment.ReplaceAllString(f.Default, "`$0`")
	}
	return "`" + f.Default + "`"
}

// tableOfFlags returns the block of the page.
func tableOfFlags(t *testing.T) string {
	t.Helper()
	root, err := repository.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(flagsPage)))
	require.NoError(t, err)
	_, rest, hasBegin := strings.Cut(string(page), "<!-- begin flags -->\n")
	table, _, hasEnd := strings.Cut(rest, "<!-- end flags -->\n")
	require.True(t, hasBegin && hasEnd)
	return table
}
