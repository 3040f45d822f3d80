package main

import (
	"flag"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"nodekeeper.dev/hack/helm"
	"nodekeeper.dev/hack/manifests"
)

var (
	deploy   = filepath.Join("..", "..", "deploy")
	chartDir = filepath.Join(deploy, "chart", "nodekeeper")
	// release is the release to compare with the manifests: it uses their namespace.
	release = helm.Release{Name: "nodekeeper", Namespace: "nodekeeper-system"}

	every = flag.Bool("every", false, "compare every combination of the features, not only those that differ by two from none or from all")
)

func load(t *testing.T) *manifests.Tree {
	t.Helper()
	tree, err := manifests.Load(deploy)
	require.NoError(t, err)
	return tree
}

// objects returns the objects of the chart with these values.
func objects(t *testing.T, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	c, err := helm.Load(chartDir)
	require.NoError(t, err)
	found, _, err := helm.Render(t.Context(), c, release, values)
	require.NoError(t, err)
	return found
}

// same checks that the chart with these values matches the kustomize output of these directories.
func same(t *testing.T, tree *manifests.Tree, values map[string]any, paths ...string) {
	t.Helper()
	want, err := tree.Render(manifests.Kustomization(paths...))
	require.NoError(t, err)
	assert.NoError(t, helm.Same(release, "0.0.0-dev", "dev", objects(t, values), want), "%v", paths)
}

func TestTheChartIsFresh(t *testing.T) {
	assert.NoError(t, run([]string{"-check", "-deploy=" + deploy, "-chart=" + chartDir}, os.Stdout))
}

func TestAStaleChartIsNoticedAndRenewed(t *testing.T) {
	dir := t.TempDir()
	fresh := map[string][]byte{"README.md": []byte("new"), "templates/quota.yaml": []byte("new"), "templates/same.yaml": []byte("same")}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "templates"), 0o700))
	for name, content := range map[string]string{
		"README.md": "old", "templates/same.yaml": "same", "templates/extra.yaml": "old", "templates/NOTES.txt": "by hand",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	stale, err := compare(dir, fresh)
	require.NoError(t, err)
	assert.Equal(t, []string{"README.md", "templates/extra.yaml", "templates/quota.yaml"}, stale)
	require.NoError(t, write(dir, stale, fresh))
	stale, err = compare(dir, fresh)
	require.NoError(t, err)
	assert.Empty(t, stale)
}

func TestDefaultsAreTheBase(t *testing.T) { same(t, load(t), nil, "base") }

// TestValuesOfOverlaysAreTheOverlays checks that each overlay has a matching values file, and that
// each values file has an overlay.
func TestValuesOfOverlaysAreTheOverlays(t *testing.T) {
	tree := load(t)
	overlays, err := os.ReadDir(filepath.Join(deploy, "overlays"))
	require.NoError(t, err)
	var want []string
	for _, overlay := range overlays {
		file := filepath.Join(chartDir, "values-"+overlay.Name()+".yaml")
		want = append(want, file)
		values, err := helm.Values(file)
		require.NoError(t, err)
		same(t, tree, values, "overlays/"+overlay.Name())
	}
	found, err := filepath.Glob(filepath.Join(chartDir, "values-*.yaml"))
	require.NoError(t, err)
	assert.ElementsMatch(t, want, found)
}

// valuesOf returns the values that enable the features of a set, without those that set flags.
func valuesOf(s set) map[string]any {
	on := func(path string) bool { return slices.Contains(s.paths(), path) }
	return map[string]any{
		"admission": map[string]any{
			"enabled": on("components/admission"), "gate": on("components/gate"), "certManager": on("components/cert-manager"),
		},
		"retention":         map[string]any{"enabled": on("components/retention")},
		"protection":        map[string]any{"enabled": on("components/protection"), "policy": on("protection/policy.yaml")},
		"admissionPolicies": !on("components/no-admission-policies"),
		"controlPlaneOnly":  on("components/control-plane"),
		"gatePolicy":        on("gate/policy.yaml"),
		"users":             map[string]any{"enabled": on("users")},
		"monitoring":        map[string]any{"enabled": on("monitoring")},
	}
}

// These features also set a flag, which a component cannot do: only the person who installs the
// chart knows the keys.
const (
	preserveTaints      = "components/preserve-taints"
	preserveAnnotations = "components/preserve-annotations"
)

// TestFeaturesTogetherAreTheirComponents checks that each value has the effect of its component,
// whatever other features are enabled.
func TestFeaturesTogetherAreTheirComponents(t *testing.T) {
	tree := load(t)
	c, err := helm.Load(chartDir)
	require.NoError(t, err)
	all := set(1<<len(features) - 1)
	checked := 0
	for s := range all + 1 {
		paths := s.paths()
		on := func(path string) bool { return slices.Contains(paths, path) }
		if n := bits.OnesCount(uint(s)); s.closed() != s || !*every && n > 2 && n < len(features)-1 ||
			on("protection/policy.yaml") && !on("components/protection") { // checks.yaml rejects this
			continue
		}
		values, k := valuesOf(s), manifests.Kustomization(paths...)
		preserve := map[string]any{}
		if on(preserveTaints) {
			preserve["taints"] = []any{"a", "b/*"}
			addFlag(k, "--preserve-taints=a,b/*")
		}
		if on(preserveAnnotations) {
			preserve["annotations"] = []any{"c"}
			addFlag(k, "--preserve-annotations=c")
		}
		values["preserve"] = preserve
		want, err := tree.Render(k)
		require.NoError(t, err)
		has, _, err := helm.Render(t.Context(), c, release, values)
		require.NoError(t, err)
		require.NoError(t, helm.Same(release, "0.0.0-dev", "dev", has, want), "%v", paths)
		checked++
	}
	t.Logf("%d combinations", checked)
	assert.Greater(t, checked, 50)
}

// addFlag appends a flag to the flags of all programs.
func addFlag(k *types.Kustomization, arg string) {
	k.Patches = append(k.Patches, types.Patch{
		Target: &types.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: "Deployment"}}},
		Patch:  `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "` + arg + `"}]`,
	})
}
