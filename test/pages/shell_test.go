package pages_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
)

func TestCommandsAreFoundInAPage(t *testing.T) {
	path := t.TempDir() + "/page.md"
	require.NoError(t, os.WriteFile(path, []byte(strings.Join([]string{
		"Run `make demo KEEP=1`, or", "", "```", "make build   # all", "for i in 1 2; do", "  bin/watcher --a='b c' \\", "    -v=1 2>x.log &", "done", "```", "",
		"```console", "$ sudo A=1 kubectl get x | head -1 && kubectl create -f - <<END", "make no", "END", "make: no", `$ echo "it's $(x)" $(kubectl a) 2>&1`, "```", "```yaml", "make: no", "```",
	}, "\n")), 0o600))
	commands, err := pages.Commands(path)
	require.NoError(t, err)
	var found []pages.Command
	for _, c := range commands {
		if c.Words[0] != "for" && c.Words[0] != "done" {
			found = append(found, c)
		}
	}
	assert.Equal(t, []pages.Command{
		{1, []string{"make", "demo", "KEEP=1"}, true},
		{4, []string{"make", "build"}, false},
		{6, []string{"bin/watcher", "--a=b c", "-v=1"}, false},
		{12, []string{"kubectl", "get", "x"}, false},
		{12, []string{"head", "-1"}, false},
		{12, []string{"kubectl", "create", "-f", "-"}, false},
		{16, []string{"echo", "it's $(x)", "$"}, false},
		{16, []string{"kubectl", "a"}, false},
	}, found)
}

func TestStepsOfABlockHaveWhatTheyPrint(t *testing.T) {
	blocks, text := pages.Parse(strings.Join([]string{
		"1. First", "", "   ```", "   $ kubectl get x \\", "       -o name", "   x/a", "     indented", "", "   $ kubectl apply -f - <<END", "   a: b", "   END", "   ```",
		"Then", "```sh", "make a  ", "", "for i in 1 2; do", "  make $i \\", "    &", "done", "make b", "```", "```yaml", "a: b", "```",
	}, "\n"))
	require.Len(t, blocks, 3)
	assert.Equal(t, []pages.Step{
		{4, "kubectl get x \\\n    -o name", []string{"x/a", "  indented", ""}},
		{9, "kubectl apply -f - <<END\na: b\nEND", nil},
	}, blocks[0].Steps())
	assert.Equal(t, []pages.Step{
		{Line: 15, Script: "make a"}, {Line: 17, Script: "for i in 1 2; do\n  make $i \\\n    &\ndone"}, {Line: 21, Script: "make b"},
	}, blocks[1].Steps())
	assert.Empty(t, blocks[2].Steps())
	assert.Equal(t, []pages.Line{{1, "1. First"}, {2, ""}, {13, "Then"}}, text)
}
