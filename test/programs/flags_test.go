package programs_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/repository"
)

var (
	// helpFlag matches a flag in the output of --help, and pageFlag the flags in the first column of docs/reference/flags.md.
	helpFlag = regexp.MustCompile(`(?m)^  -([a-z][a-z-]*)`)
	pageRow  = regexp.MustCompile("(?m)^[|] ([^|]*) [|]")
	pageFlag = regexp.MustCompile("`--?([a-z][a-z-]*)`")
)

// TestEveryFlagIsOnThePageOfFlags, and no other one.
func TestEveryFlagIsOnThePageOfFlags(t *testing.T) {
	var has []string
	for _, name := range []string{"watcher", "processor", "webhook"} {
		path, err := programs.Path(name)
		require.NoError(t, err)
		var help bytes.Buffer
		cmd := exec.CommandContext(t.Context(), path, "--help")
		cmd.Stdout, cmd.Stderr = &help, &help
		require.NoError(t, cmd.Run(), help.String())
		for _, flag := range helpFlag.FindAllStringSubmatch(help.String(), -1) {
			has = append(has, flag[1])
		}
	}
	require.NotEmpty(t, has)
	root, err := repository.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "flags.md"))
	require.NoError(t, err)
	var says []string
	for _, row := range pageRow.FindAllStringSubmatch(string(page), -1) {
		for _, flag := range pageFlag.FindAllStringSubmatch(row[1], -1) {
			says = append(says, flag[1])
		}
	}
	assert.Equal(t, unique(has), unique(says))
}

func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
