package main

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

// inModule returns tests of a new module that contains files.
func inModule(t *testing.T, files map[string]string) (m *tests, problems *bytes.Buffer) {
	t.Helper()
	problems = &bytes.Buffer{}
	m = &tests{dir: t.TempDir(), packages: []string{"./..."}, flags: []string{"-vet=off"}, problems: problems, log: io.Discard}
	write(t, m.dir, files)
	return m, problems
}

// TestEveryEndOfATestIsCounted in what go test prints.
func TestEveryEndOfATestIsCounted(t *testing.T) {
	t.Parallel()
	m, problems := inModule(t, tested)
	ran := outcomes{}
	require.NoError(t, m.goTest(t.Context(), ran, m.dir, "./..."), problems)
	var r result
	r.count(ran)
	assert.Equal(t, result{
		Passed: 4,
		Failed: []string{
			"example.com/m/b TestFailsAfterItsSubtests", "example.com/m/b TestParent/fails",
			"example.com/m/c", "example.com/m/d", "example.com/m/e TestDies",
		},
		Skipped: map[string]int{"Kubernetes 1.30.14: this needs 1.36 or newer: a policy": 1, "no script here": 1, "no reason given": 1},
	}, r)
	assert.Error(t, outcomes{}.read(strings.NewReader("ok  \texample.com/m/a\t0.1s\n")))
}

// starting is a module in which two packages have tests that start an API server, besides a
// benchmark, and one has others.
var starting = map[string]string{
	"go.mod":                                 "module example.com/m\n",
	"test/controlplane/controlplane.go":      "package controlplane\n",
	"test/controlplane/controlplane_test.go": "package controlplane\n\nimport \"testing\"\n\nfunc TestItself(t *testing.T) { t.Error(\"not run\") }\n",
	"a/a_test.go":                            onAPIServer("a_test", "TestStarts"),
	"b/b.go":                                 strings.Replace(onAPIServer("b", ""), "\t\"testing\"\n", "", 1),
	"b/b_test.go":                            "package b\n\nimport \"testing\"\n\nfunc TestWithoutImport(*testing.T) {}\n",
	"c/c_test.go":                            "package c\n\nimport \"testing\"\n\nfunc TestOther(t *testing.T) { t.Error(\"not run\") }\n",
	"test/bench/bench_test.go":               onAPIServer("bench", "TestBench"),
	"test/helm/go.mod":                       "module example.com/m/test/helm\n",
	"test/helm/helm_test.go":                 "package helm\n\nimport \"testing\"\n\nfunc TestChart(*testing.T) {}\n\nfunc TestChartOfOthers(t *testing.T) { t.Error(\"not run\") }\n",
}

// onAPIServer returns a file that imports the package that starts an API server, with an empty test
// unless its name is empty.
func onAPIServer(of, test string) string {
	text := "package " + of + "\n\nimport (\n\t\"testing\"\n\n\t_ \"example.com/m/test/controlplane\"\n)\n"
	if test != "" {
		text += "\nfunc " + test + "(*testing.T) {}\n"
	}
	return text
}

func TestTheTestsOnAnAPIServerRunWithThatOfTheChart(t *testing.T) {
	t.Parallel()
	m, problems := inModule(t, starting)
	var log bytes.Buffer
	m.chart, m.log = "TestChart", &log
	var r result
	require.NoError(t, m.run(t.Context(), &r), problems)
	assert.Equal(t, result{Passed: 3}, r)
	assert.Contains(t, log.String(), `"Test":"TestStarts"`)
}

// TestWhatHasNotRunIsNotStored: go test also fails if a test does, so its failure proves nothing.
func TestWhatHasNotRunIsNotStored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(m *tests)
		err    string
	}{
		"a test that was renamed":       {func(m *tests) { m.chart = "TestGone" }, "has not run TestGone: nothing is stored"},
		"a flag that does not exist":    {func(m *tests) { m.flags = []string{"-missing"} }, "has not run example.com/m/a, example.com/m/b, TestChart"},
		"a package that does not exist": {func(m *tests) { m.packages = []string{"./missing"} }, "exit status 1"},
		"a module that cannot be read":  {func(m *tests) { write(t, m.dir, map[string]string{"test/helm/go.mod": "modul\n"}) }, "has not run TestChart: nothing is stored"},
		"a directory that is not there": {func(m *tests) { m.dir = filepath.Join(m.dir, "missing") }, "exit status"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := inModule(t, starting)
			m.chart = "TestChart"
			c.change(m)
			require.ErrorContains(t, m.run(t.Context(), &result{}), c.err)
		})
	}
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
	dir := t.TempDir()
	write(t, dir, map[string]string{resultsFile: stored, releasesFile: pinned, page: before})
	t.Chdir(dir)
	require.ErrorContains(t, updatePage(true), "run make generate")

	store := func(product string, r result) {
		r.Kubernetes, r.Product, r.Date, r.Commit = "1.30.14", product, "2026-11-29", "fedcba9876543210-dirty"
		require.NoError(t, r.store())
		require.NoError(t, updatePage(false))
	}
	failing := result{Passed: 1, Failed: []string{"example.com/m/b TestParent/fails", "example.com/m/c"}}
	store("sharding", failing)
	require.ErrorContains(t, failing.failure(), "\nexample.com/m/b TestParent/fails\nexample.com/m/c")
	assert.Contains(t, read(t, page), "\nThe sharder failed on 1.30.14:\n\n- `example.com/m/b TestParent/fails`\n- `example.com/m/c`\n")
	passing := result{Passed: 2, Skipped: map[string]int{
		"Kubernetes 1.30.14: this needs 1.36 or newer: a policy": 1, "no script here": 1, "no reason given": 1,
	}}
	require.NoError(t, passing.failure())
	for _, product := range []string{"sharding", "placement"} {
		store(product, passing)
	}
	assert.Equal(t, strings.ReplaceAll(`# Page

<!-- begin results -->
| Kubernetes | label keeper | sharder | placement | commit |
| --- | --- | --- | --- | --- |
| 1.30.14 | not run | 2 passed, 3 skipped | 2 passed, 3 skipped | fedcba98-dirty of 2026-11-29 |
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

	require.NoError(t, updatePage(true))
	require.NoError(t, os.WriteFile(resultsFile, []byte(strings.Replace(read(t, resultsFile), `"passed": 9`, `"passed": 8`, 1)), 0o600))
	require.ErrorContains(t, run(t.Context(), []string{"-check"}, io.Discard), "run make generate")
	require.NoError(t, run(t.Context(), nil, io.Discard))
	assert.Contains(t, read(t, page), "| 1.36.3 | 8 passed, ")
}

// TestWhatIsNoReleaseIsRefused before a test runs.
func TestWhatIsNoReleaseIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{resultsFile: stored, releasesFile: pinned, page: before})
	t.Chdir(dir)
	server := filepath.Join(dir, "kube-apiserver")
	t.Setenv("KUBEBUILDER_ASSETS", filepath.Dir(server))
	require.ErrorContains(t, run(t.Context(), []string{"other"}, io.Discard), `there is no product "other"`)
	require.ErrorContains(t, run(t.Context(), []string{"keeper"}, io.Discard), server+" --version")
	require.NoError(t, os.WriteFile(server, []byte("#!/bin/sh\necho Kubernetes unknown\n"), 0o700))
	require.ErrorContains(t, run(t.Context(), []string{"keeper"}, io.Discard), "kube-apiserver prints no release")
}

// TestREADMENamesTheTestedReleases: those on which the tests of all products have passed.
func TestREADMENamesTheTestedReleases(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	results, err := readResults()
	require.NoError(t, err)
	passed := map[string]int{}
	for _, r := range results {
		if len(r.Failed) == 0 {
			passed[r.Kubernetes[:strings.LastIndex(r.Kubernetes, ".")]]++
		}
	}
	maps.DeleteFunc(passed, func(_ string, count int) bool { return count < len(products) })
	tested := slices.SortedFunc(maps.Keys(passed), func(a, b string) int { return byRelease(a+".0", b+".0") })
	require.NotEmpty(t, tested)
	last := len(tested) - 1
	assert.Contains(t, read(t, "README.md"), "(tested on "+strings.Join(tested[:last], ", ")+" and "+tested[last]+")")
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(content)
}
