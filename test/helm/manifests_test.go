package helm_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
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
	chartDir = filepath.Join(deploy, "chart", "nodekeeper")
	// compared is the release to compare with the manifests: it uses their namespace.
	compared = helm.Release{Chart: name, Name: name, Namespace: system}

	// chartDirs are those of all charts. TestEveryChartIsTested checks that they are all.
	chartDirs = []string{chartDir, sharder.dir(), placement.dir()}

	every = flag.Bool("every", false, "compare every combination of the features, not only those that differ by two from none or from all")
)

// feature is a setting of the chart that has the effect of part of deploy.
type feature struct {
	path  string // of a component, a directory of resources, or a single file
	set   func(map[string]any)
	needs string // the path of the feature without which the chart refuses this one
	flag  string // what the setting passes to every program, too: only a user knows the keys
}

// on returns the values in which a path has a value.
func on(value any, path ...string) func(map[string]any) {
	return func(values map[string]any) {
		if err := unstructured.SetNestedField(values, value, path...); err != nil {
			panic(err)
		}
	}
}

// features are in the order in which kustomize applies their components.
var features = []feature{
	{path: "components/admission", set: on(true, "admission", "enabled")},
	{path: "components/gate", set: on(true, "admission", "gate"), needs: "components/admission"},
	{path: "components/cert-manager", set: on(true, "admission", "certManager"), needs: "components/admission"},
	{path: "components/retention", set: on(true, "retention", "enabled")},
	{path: "components/protection", set: on(true, "protection", "enabled")},
	{path: "components/preserve-taints", set: on([]any{"a", "b/*"}, "preserve", "taints"), flag: "--preserve-taints=a,b/*"},
	{path: "components/preserve-annotations", set: on([]any{"c"}, "preserve", "annotations"), flag: "--preserve-annotations=c"},
	{path: "components/no-admission-policies", set: on(false, "admissionPolicies")},
	{path: "components/control-plane", set: on(true, "controlPlaneOnly")},
	{path: "gate/policy.yaml", set: on(true, "gatePolicy")},
	{path: "protection/policy.yaml", set: on(true, "protection", "policy"), needs: "components/protection"},
	{path: "users", set: on(true, "users", "enabled")},
	{path: "ui", set: on(true, "ui", "enabled")},
	{path: "monitoring", set: on(true, "monitoring", "enabled")},
}

func tree(t *testing.T) *manifests.Tree {
	t.Helper()
	loaded, err := manifests.Load(deploy)
	require.NoError(t, err)
	return loaded
}

// objects returns the objects of the chart with these values.
func objects(t *testing.T, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	found, _, err := helm.Render(t.Context(), load(t), compared, values)
	require.NoError(t, err)
	return found
}

// same checks that the chart with these values matches the kustomize output.
func same(t *testing.T, from *manifests.Tree, values map[string]any, k *types.Kustomization) {
	t.Helper()
	want, err := from.Render(k)
	require.NoError(t, err)
	require.NoError(t, helm.Same(compared, "0.0.0-dev", "dev", objects(t, values), want), "%v %v", k.Resources, k.Components)
}

func TestDefaultsAreTheBase(t *testing.T) { same(t, tree(t), nil, manifests.Kustomization("base")) }

// overlays returns the values file of each overlay. It checks that there is one for each, and no
// other.
func overlays(t *testing.T, deploy, chartDir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	dirs, err := filepath.Glob(filepath.Join(deploy, "overlays", "*"))
	require.NoError(t, err)
	for _, dir := range dirs {
		files[filepath.Base(dir)] = filepath.Join(chartDir, "values-"+filepath.Base(dir)+".yaml")
	}
	found, err := filepath.Glob(filepath.Join(chartDir, "values-*.yaml"))
	require.NoError(t, err)
	require.ElementsMatch(t, slices.Collect(maps.Values(files)), found)
	return files
}

func TestValuesOfOverlaysAreTheOverlays(t *testing.T) {
	from := tree(t)
	for overlay, file := range overlays(t, deploy, chartDir) {
		values, err := helm.Values(file)
		require.NoError(t, err)
		same(t, from, values, manifests.Kustomization("overlays/"+overlay))
	}
}

// chosen returns the features of a combination, or nil if the chart refuses it, and how many of them
// no other one needs.
func chosen(combination int) (some []feature, unneeded int) {
	needed := map[string]bool{}
	for i, f := range features {
		if combination&(1<<i) == 0 {
			continue
		}
		if f.needs != "" && !slices.ContainsFunc(some, func(g feature) bool { return g.path == f.needs }) {
			return nil, 0
		}
		some = append(some, f)
		needed[f.needs] = true
	}
	for _, f := range some {
		if !needed[f.path] {
			unneeded++
		}
	}
	return some, unneeded
}

// TestFeaturesTogetherAreTheirComponents checks that each value has the effect of its component,
// whatever other features are enabled.
func TestFeaturesTogetherAreTheirComponents(t *testing.T) {
	from := tree(t)
	checked := 0
	for combination := range 1 << len(features) {
		some, unneeded := chosen(combination)
		few, most := unneeded <= 2, len(some) >= len(features)-2
		if len(some) == 0 || !*every && !few && !most {
			continue
		}
		values := map[string]any{}
		paths := []string{"base"}
		for _, f := range some {
			f.set(values)
			paths = append(paths, f.path)
		}
		k := manifests.Kustomization(paths...)
		for _, f := range some {
			if f.flag != "" {
				addFlag(k, f.flag)
			}
		}
		same(t, from, values, k)
		checked++
	}
	t.Logf("%d combinations", checked)
	assert.Greater(t, checked, 100)
}

// addFlag appends a flag to the flags of the programs, but not of the live page, which restores
// nothing.
func addFlag(k *types.Kustomization, arg string) {
	k.Patches = append(k.Patches, types.Patch{
		Target: &types.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: "Deployment"}, Name: "watcher|processor|webhook"}},
		Patch:  `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "` + arg + `"}]`,
	})
}

// TestADifferenceIsReported changes and omits objects, which the comparison above must find.
func TestADifferenceIsReported(t *testing.T) {
	want, err := tree(t).Render(manifests.Kustomization("base"))
	require.NoError(t, err)
	rendered := objects(t, nil)
	require.Len(t, rendered, len(want))
	for i, original := range rendered {
		name := fmt.Sprintf("%s %s %s/%s", original.GetAPIVersion(), original.GetKind(), original.GetNamespace(), original.GetName())
		has := slices.Clone(rendered)
		has[i] = original.DeepCopy()
		has[i].Object["spec"] = map[string]any{"other": true}
		require.ErrorContains(t, helm.Same(compared, "0.0.0-dev", "dev", has, want), name+".spec")
		require.ErrorContains(t, helm.Same(compared, "0.0.0-dev", "dev", slices.Delete(has, i, i+1), want), "the chart has no "+name)
	}
}

func TestEveryChartIsTested(t *testing.T) {
	var all []string
	for _, pattern := range []string{"deploy/chart/*", "*/deploy/chart/*"} {
		found, err := filepath.Glob(filepath.Join("..", "..", pattern))
		require.NoError(t, err)
		all = append(all, found...)
	}
	assert.ElementsMatch(t, all, chartDirs)
}

// TestFilesAreCopies checks what make generate copies: Helm reads no files outside a chart.
func TestFilesAreCopies(t *testing.T) {
	for _, chart := range chartDirs {
		for _, file := range []string{"dashboard.json", "rules.yaml"} {
			want, err := os.ReadFile(filepath.Join(chart, "..", "..", "monitoring", file))
			require.NoError(t, err)
			has, err := os.ReadFile(filepath.Join(chart, "files", file))
			require.NoError(t, err)
			assert.True(t, bytes.Equal(want, has), "%s of %s is stale: run make generate", file, chart)
		}
	}
}
