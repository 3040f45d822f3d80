package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReleaseIsFoundByItsMinorVersion(t *testing.T) {
	t.Parallel()
	const sums = "k8s.io/kubernetes v1.3.1 h1:three=\nk8s.io/kubernetes v1.30.14 h1:thirty=\n"
	r, err := releaseOf("1.30", sums)
	require.NoError(t, err)
	assert.Equal(t, release{version: "v1.30.14", sum: "h1:thirty="}, r)
	for _, unknown := range []string{"1.29", "1.30.14", "v1.30", "30", ""} {
		_, err := releaseOf(unknown, sums)
		assert.ErrorContains(t, err, "no release of Kubernetes "+unknown+" is pinned")
		assert.ErrorContains(t, err, "choose from 1.3, 1.30")
	}
}

// TestPinnedReleasesHaveThatOfTheModule, so that a matrix over all of them covers the usual one.
func TestPinnedReleasesHaveThatOfTheModule(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	r, err := releaseOf("1.37", kubernetesSums)
	require.NoError(t, err)
	assert.Contains(t, string(mod), "k8s.io/kubernetes "+r.version+" ")
}

// TestModulesOfAReleaseAreThoseThatItPublished: only what lies in its own tree is replaced.
func TestModulesOfAReleaseAreThoseThatItPublished(t *testing.T) {
	t.Chdir(filepath.Join("..", "..")) // where make runs it
	sources, modfile := t.TempDir(), filepath.Join(t.TempDir(), "go.mod")
	for name, content := range map[string]string{
		"go.mod": `module k8s.io/kubernetes

go 1.24.0

require (
	example.com/lib v1.2.3
	k8s.io/api v0.0.0
	k8s.io/sample-apiserver v0.0.0
)

replace (
	example.com/lib => example.com/fork v1.2.4
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/sample-apiserver => ./staging/src/k8s.io/sample-apiserver
)
`,
		"go.sum": "example.com/fork v1.2.4 h1:x=\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(sources, name), []byte(content), 0o400))
	}
	require.NoError(t, release{version: "v1.33.13"}.writeModfile(t.Context(), sources, modfile))
	assert.Equal(t, map[string]string{
		"go.mod": `module k8s.io/kubernetes

go 1.24.0

require (
	example.com/lib v1.2.3
	k8s.io/api v0.0.0
)

replace (
	example.com/lib => example.com/fork v1.2.4
	k8s.io/api => k8s.io/api v0.33.13
)
`,
		"go.sum": "example.com/fork v1.2.4 h1:x=\n",
	}, contents(t, filepath.Dir(modfile)))
}

// TestMatrixHasEveryRelease that is pinned: the nightly workflow, and the page with the results.
func TestMatrixHasEveryRelease(t *testing.T) {
	t.Parallel()
	var quoted, rows []string
	for line := range strings.Lines(kubernetesSums) {
		version := strings.TrimPrefix(strings.Fields(line)[1], "v")
		minor := version[:strings.LastIndex(version, ".")]
		quoted, rows = append(quoted, `"`+minor+`"`), append(rows, "\n| "+version+" | ")
	}
	workflow, err := os.ReadFile(filepath.Join("..", "..", ".github", "workflows", "clusters.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(workflow), "kube: ["+strings.Join(quoted, ", ")+"]")
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "compatibility.md"))
	require.NoError(t, err)
	for _, row := range rows {
		assert.Contains(t, string(page), row)
	}
}
