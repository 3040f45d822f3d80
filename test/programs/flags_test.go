package programs_test

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

	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/reference"
	"nodekeeper.dev/test/repository"
)

const flagsPage = "docs/reference/flags.md"

// longest is the length up to which the page repeats a default. It describes what is longer.
const longest = 60

var (
	// helpFlag matches a flag in the output of --help: its name, the word for its value, which a switch has not, and its usage.
	helpFlag = regexp.MustCompile(`(?m)^  -([a-z][a-z-]*)(?: (\w+))?\n\s+(.*)$`)
	// inUsage is the default at the end of a usage, with or without quotes.
	inUsage = regexp.MustCompile(`\(default "?([^"]*?)"?\)$`)
	// fromEnvironment is a variable of the environment in a default.
	fromEnvironment = regexp.MustCompile(`\$[A-Z_]+`)
	// pageFlag is the first cell of a row: which programs have the flag, all of them if it does not say, and its name.
	pageFlag = regexp.MustCompile("^(?:([a-z, ]+) )?`--?([a-z][a-z-]*)`$")
)

// TestReferenceHasTheFlagsWithTheirDefaults: of the watcher, the processor and the webhook, and no other ones.
func TestReferenceHasTheFlagsWithTheirDefaults(t *testing.T) {
	has := map[string]map[string]helped{} // by the name of the flag, and the program
	services := []string{"watcher", "processor", "webhook"}
	for _, program := range services {
		for name, flag := range flagsOf(t, program) {
			if has[name] == nil {
				has[name] = map[string]helped{}
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
				byDefault = flag.onPage(t, byDefault)
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

// helped is what --help says of a flag.
type helped struct {
	name      string
	isSwitch  bool
	usage     string
	byDefault string // "" is the zero value
}

func flagsOf(t *testing.T, program string) map[string]helped {
	t.Helper()
	path, err := programs.Path(program)
	require.NoError(t, err)
	var help bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, "--help")
	cmd.Stdout, cmd.Stderr = &help, &help
	require.NoError(t, cmd.Run(), help.String())
	flags := map[string]helped{}
	for _, found := range helpFlag.FindAllStringSubmatch(help.String(), -1) {
		f := helped{name: found[1], isSwitch: found[2] == "", usage: found[3]}
		if says := inUsage.FindStringSubmatch(f.usage); says != nil {
			f.byDefault = says[1]
		}
		flags[f.name] = f
	}
	require.Contains(t, flags, "kubeconfig")
	return flags
}

// onPage returns the cell for the default, where the page says this of it now.
func (f helped) onPage(t *testing.T, now string) string {
	t.Helper()
	isWord := slices.Contains([]string{"", "none", "every node"}, now)
	switch {
	case f.name == "version": // it does something else
		return ""
	case f.byDefault == "" && f.isSwitch:
		return "`false`"
	case f.byDefault == "" && strings.Contains(f.usage, "0 "): // which says what 0 means
		return "`0`"
	case f.byDefault == "" && isWord:
		return now
	case f.byDefault == "":
		return "none"
	case len(f.byDefault) > longest:
		assert.Greater(t, len(strings.Fields(now)), 2, "%s describes the default of --%s in words", flagsPage, f.name)
		return now
	case fromEnvironment.MatchString(f.byDefault):
		return fromEnvironment.ReplaceAllString(f.byDefault, "`$0`")
	}
	return "`" + f.byDefault + "`"
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
