package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/repository"
)

const output = `go run ./test/demo

7/7  At the end
  ✓ every node and its record agree

Summary
  ✓ 1  every node has a record        0.3 s
  ✓ 2  every node and its record agree        12.0 s

  Transactions: 9
  Everything happened as expected, in 20.1 s.
`

func TestDemoEndsAsThePageShows(t *testing.T) {
	p := &page{summary: []string{
		"Summary", "  ✓ 1  every node has a record                0.1 s", "  ✓ 2  every node and its record agree   0.1 s", "…",
		"  Everything happened as expected, in 12.6 s.",
	}}
	require.NoError(t, p.checkEnd(output), "times differ")
	for name, tc := range map[string]struct{ printed, want string }{
		"another promise":    {strings.Replace(output, "has a record", "has records", 1), "no line   ✓ 1  every node"},
		"another result":     {strings.Replace(output, "✓ 2", "✗ 2", 1), "no line   ✓ 2"},
		"another end":        {strings.Replace(output, "as expected", "at last", 1), "no line   Everything"},
		"no end":             {strings.Split(output, "  Transactions")[0], "no line   Everything"},
		"more after its end": {output + "more\n", "there is more"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, p.checkEnd(tc.printed), tc.want)
		})
	}
}

func TestDemoTakesNoLongerThanThePageAllows(t *testing.T) {
	p := &page{first: 30 * time.Minute, later: time.Minute}
	require.NoError(t, p.checkFirst(effort{elapsed: 2 * time.Hour, busy: time.Hour}))
	require.ErrorContains(t, p.checkFirst(effort{busy: time.Hour + 1}), "the first time")
	require.NoError(t, p.checkLater(effort{elapsed: time.Minute, busy: time.Hour}))
	require.ErrorContains(t, p.checkLater(effort{elapsed: time.Minute + 1}), "once everything was built")
}

func TestPageHasTheTimeOfTheDemo(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	p, err := parse(string(content))
	require.NoError(t, err)
	require.Len(t, p.steps, 2)
	assert.Equal(t, demoCommand, p.steps[0].Command())
	assert.Equal(t, "make test", p.steps[1].Command())
	assert.Greater(t, p.first, p.later)
	for without, want := range map[string]string{
		"## " + pages.GoAlone: "no such section",
		demoCommand:           "does not have",
		"Allow ":              "does not state",
		"After that, ":        "does not state",
		"on two cores":        "does not state",
		"less than ":          "does not state",
	} {
		_, err := parse(strings.ReplaceAll(string(content), without, ""))
		require.ErrorContains(t, err, want, without)
	}
}

func TestNewcomerHasGoAndLittleElse(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, linkTools(t.Context(), bin))
	root := t.TempDir()
	n := &newcomer{out: t.Output(), root: root, env: environment([]string{
		"HOME=/home/one", "GOPROXY=direct", "https_proxy=http://proxy", "PATH=/usr/bin", "GOWORK=off", "KUBEBUILDER_ASSETS=" + root + "/bin/controlplane",
		"CC=/usr/bin/gcc", "MAKEFLAGS=n",
	}, root, bin)}
	assert.Equal(t, []string{"PATH=" + bin, "HOME=/home/one", "GOPROXY=direct", "https_proxy=http://proxy"}, n.env)
	assert.Contains(t, environment([]string{"KUBEBUILDER_ASSETS=/assets"}, root, bin), "KUBEBUILDER_ASSETS=/assets", "the user has set it")
	for _, name := range []string{"kubectl", "gcc", "cc", "node", "docker"} {
		_, _, err := n.run(t.Context(), "command -v "+name)
		require.Error(t, err, name)
	}
	printed, _, err := n.run(t.Context(), "command -v go git make && pwd && echo none >&2")
	require.NoError(t, err)
	assert.Equal(t, []string{bin + "/go", bin + "/git", bin + "/make", n.root, ""}, strings.Split(printed, "\n"))
}

func TestCheckoutIsFreshUntilSomethingIsBuiltOrChanged(t *testing.T) {
	root := t.TempDir()
	isFreshWith := func(name string) bool {
		t.Helper()
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("/bin/\n"), 0o600))
		if name == ".gitignore" {
			for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "--message=x"}} {
				require.NoError(t, exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).Run())
			}
		}
		fresh, err := isFresh(t.Context(), root)
		require.NoError(t, err)
		return fresh
	}
	assert.True(t, isFreshWith(".gitignore"))
	assert.False(t, isFreshWith("bin/watcher"))
	require.NoError(t, os.Remove(filepath.Join(root, "bin", "watcher")))
	assert.False(t, isFreshWith("new.go"))
}
