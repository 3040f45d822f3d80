package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tested is a module whose tests end in every way.
var tested = map[string]string{
	"go.mod": "module example.com/m\n",
	"a/a_test.go": `package a

import "testing"

func TestPasses(t *testing.T) {}

func TestOfThree(t *testing.T) {
	t.Run("passes", func(t *testing.T) {})
	t.Run("needs", func(t *testing.T) {
		t.Log("not this line")
		t.Skip("Kubernetes 1.30.14: this needs 1.36 or newer: a policy")
	})
	t.Run("machine", func(t *testing.T) { t.Skip("no script here") })
}

func TestSilent(t *testing.T) { t.SkipNow() }
`,
	"b/b_test.go": `package b

import "testing"

func TestParent(t *testing.T) {
	t.Run("fails", func(t *testing.T) { t.Error("no") })
	t.Run("passes", func(t *testing.T) {})
}

func TestFailsAfterItsSubtests(t *testing.T) {
	t.Cleanup(func() { t.Error("no") })
	t.Run("passes", func(t *testing.T) {})
}
`,
	"c/c_test.go": "package c\n\nfunc broken() { missing() }\n",
	"d/d_test.go": "package d\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(*testing.M) { os.Exit(1) }\n",
	"e/e_test.go": "package e\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestDies(*testing.T) { os.Exit(1) }\n",
	"f/f.go":      "package f\n",
}

// outputOf runs the tests of packages of the module above.
func outputOf(t *testing.T, packages ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, tested)
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"-C", dir, "test", "-json", "-vet=off"}, packages...)...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	_ = cmd.Run() // some fail
	require.NotZero(t, out.Len(), problems.String())
	return out.Bytes()
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

// TestEveryEndOfATestIsCounted in what go test prints.
func TestEveryEndOfATestIsCounted(t *testing.T) {
	t.Parallel()
	var r result
	require.NoError(t, r.read(bytes.NewReader(outputOf(t, "./..."))))
	assert.Equal(t, result{
		Passed: 4,
		Failed: []string{
			"example.com/m/b TestFailsAfterItsSubtests", "example.com/m/b TestParent/fails",
			"example.com/m/c", "example.com/m/d", "example.com/m/e TestDies",
		},
		Skipped: map[string]int{"Kubernetes 1.30.14: this needs 1.36 or newer: a policy": 1, "no script here": 1, "no reason given": 1},
	}, r)
	assert.ErrorContains(t, new(result).read(bytes.NewReader(outputOf(t, "./f"))), "no test has run")
	assert.Error(t, new(result).read(strings.NewReader("ok  \texample.com/m/a\t0.1s\n")))
}

const (
	stored = `[
  {"kubernetes": "1.36.3", "product": "sharding", "date": "2026-11-29", "commit": "0123456789abcdef", "passed": 7},
  {"kubernetes": "1.36.3", "product": "keeper", "date": "2026-11-29", "commit": "0123456789abcdef", "passed": 9,
   "skipped": {"no script here": 2}}
]
`
	pinned = "k8s.io/kubernetes v1.30.14 h1:x=\nk8s.io/kubernetes v1.33.13 h1:x=\n"
	before = "# Page\n\n<!-- begin results -->\nold\n<!-- end results -->\n\nMore.\n"
)

// TestPageHasTheResults of runs: those of a product and a release replace the ones before.
func TestPageHasTheResults(t *testing.T) {
	passing := outputOf(t, "./a")
	failing := outputOf(t, "./a", "./b")
	dir := t.TempDir()
	write(t, dir, map[string]string{resultsFile: stored, releasesFile: pinned, page: before})
	t.Chdir(dir)
	require.ErrorContains(t, run([]string{"-check"}, nil, io.Discard, time.Time{}), "run make generate")

	now := time.Date(2026, 11, 30, 1, 0, 0, 0, time.FixedZone("", 7200))
	store := func(product string, output []byte) error {
		return run([]string{"-product=" + product, "-kubernetes=Kubernetes v1.30.14", "-commit=fedcba9876543210-dirty"}, bytes.NewReader(output), io.Discard, now)
	}
	require.ErrorContains(t, store("placement", failing), "failed on Kubernetes 1.30.14:\nexample.com/m/b ")
	assert.Contains(t, read(t, page), "\nFailed on 1.30.14:\n\n- `example.com/m/b TestFailsAfterItsSubtests`\n- `example.com/m/b TestParent/fails`\n")
	require.NoError(t, store("placement", passing))
	require.NoError(t, store("keeper", passing))
	assert.Equal(t, strings.ReplaceAll(`# Page

<!-- begin results -->
| Kubernetes | label keeper | sharder | placement | commit |
| --- | --- | --- | --- | --- |
| 1.30.14 | 2 passed, 3 skipped | not run | 2 passed, 3 skipped | fedcba98-dirty of 2026-11-29 |
| 1.33.13 | not run | not run | not run |  |
| 1.36.3 | 9 passed, 2 skipped | 7 passed | not run | 01234567 of 2026-11-29 |

| skipped, because | tests |
| --- | --- |
| 'needs 1.36 or newer: a policy' | 2 on 1.30.14 |
| 'no reason given' | 2 on 1.30.14 |
| 'no script here' | 2 on 1.30.14, 2 on 1.36.3 |
<!-- end results -->

More.
`, "'", "`"), read(t, page))

	require.NoError(t, run([]string{"-check"}, nil, io.Discard, time.Time{}))
	require.NoError(t, os.WriteFile(resultsFile, []byte(strings.Replace(read(t, resultsFile), `"passed": 9`, `"passed": 8`, 1)), 0o600))
	require.ErrorContains(t, run([]string{"-check"}, nil, io.Discard, time.Time{}), "run make generate")
	require.NoError(t, run(nil, nil, io.Discard, time.Time{}))
	assert.Contains(t, read(t, page), "| 1.36.3 | 8 passed, ")
}

// TestWhatIsNoResultIsRefused before anything is stored.
func TestWhatIsNoResultIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{resultsFile: stored, releasesFile: pinned, page: before})
	t.Chdir(dir)
	passing := `{"Action":"pass","Package":"p","Test":"TestX"}`
	for name, args := range map[string][]string{
		"no such product": {"-product=other", "-kubernetes=Kubernetes v1.30.14", "-commit=1"},
		"no release":      {"-product=keeper", "-kubernetes=", "-commit=1"},
		"no commit":       {"-product=keeper", "-kubernetes=Kubernetes v1.30.14"},
	} {
		require.Error(t, run(args, strings.NewReader(passing), io.Discard, time.Time{}), name)
	}
	assert.JSONEq(t, stored, read(t, resultsFile))
	assert.Equal(t, before, read(t, page))
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(content)
}
