package helm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/hack/helm"
	"nodekeeper.dev/hack/manifests"
)

var (
	sharding      = filepath.Join("..", "..", "sharding", "deploy")
	sharderDir    = filepath.Join(sharding, "chart", "sharder")
	sharderSystem = helm.Release{Chart: "sharder", Name: "sharder", Namespace: "sharder-system"}
)

func loadSharder(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := helm.Load(sharderDir)
	require.NoError(t, err)
	return c
}

func TestChartOfTheSharderIsItsManifests(t *testing.T) {
	from, err := manifests.Load(sharding)
	require.NoError(t, err)
	ha, err := helm.Values(filepath.Join(sharderDir, "values-ha.yaml"))
	require.NoError(t, err)
	for dirs, given := range map[string]map[string]any{"base": nil, "overlays/ha": ha, "base monitoring": values(t, "{monitoring: {enabled: true}}")} {
		want, err := from.Render(manifests.Kustomization(strings.Fields(dirs)...))
		require.NoError(t, err)
		rendered, notes, err := helm.Render(t.Context(), loadSharder(t), sharderSystem, given)
		require.NoError(t, err)
		require.NoError(t, helm.Same(sharderSystem, "0.0.0-dev", "dev", rendered, want), dirs)
		assert.Contains(t, notes, "kubectl delete rings --all")
	}
	for _, message := range lint.RunAll(sharderDir, ha, sharderSystem.Namespace).Messages {
		assert.LessOrEqual(t, message.Severity, support.InfoSev, message.Error()) // it recommends an icon
	}
}

func TestChartOfTheSharderHasTheCRD(t *testing.T) {
	const file = "sharding.nodekeeper.dev_clusterrings.yaml"
	want, err := os.ReadFile(filepath.Join(sharding, "crd", file))
	require.NoError(t, err)
	has, err := os.ReadFile(filepath.Join(sharderDir, "crds", file))
	require.NoError(t, err)
	assert.Equal(t, string(want), string(has), "make generate copies it")
}

// TestSharderIsInTheNamespaceOfItsRelease renders it for another namespace than that of the
// manifests.
func TestSharderIsInTheNamespaceOfItsRelease(t *testing.T) {
	rendered, _, err := helm.Render(t.Context(), loadSharder(t), helm.Release{Chart: "sharder", Name: "s", Namespace: "elsewhere"}, values(t, "{monitoring: {enabled: true}}"))
	require.NoError(t, err)
	for _, obj := range rendered {
		if obj.GetKind() == "PrometheusRule" || obj.GetName() == "sharder-dashboard" {
			assert.Equal(t, "elsewhere", obj.GetNamespace())
			continue
		}
		text, err := obj.MarshalJSON()
		require.NoError(t, err)
		assert.NotContains(t, string(text), "sharder-system", "%s %s", obj.GetKind(), obj.GetName())
	}
}

// TestSharderRefusesSettingsThatCannotWork checks the schema and the checks of the chart.
func TestSharderRefusesSettingsThatCannotWork(t *testing.T) {
	for given, want := range map[string]string{
		"{replicas: -1}":               "/replicas",
		"{replica: 1}":                 "replica",
		"{extraArgs: [--namespace=x]}": "use the namespace of the release",
		"{replicas: 1, extraArgs: [--leader-elect=false]}":                              "--leader-elect is not for extraArgs",
		"{extraArgs: ['--metrics-bind-address=:9090']}":                                 "--metrics-bind-address is not for extraArgs",
		"{extraArgs: [sync-period=1m]}":                                                 "/extraArgs/0",
		"{commonLabels: {helm.sh/chart: mine}}":                                         "invalid propertyName",
		"{networkPolicy: {apiServerPorts: [0]}}":                                        "/networkPolicy/apiServerPorts/0",
		"{affinity: {nodeAffinty: {}}}":                                                 "nodeAffinty",
		"{tolerations: [{keys: a}]}":                                                    "keys",
		"{topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}": "topologyKey",
	} {
		_, _, err := helm.Render(t.Context(), loadSharder(t), sharderSystem, values(t, given))
		assert.ErrorContains(t, err, want, given)
	}
	_, _, err := helm.Render(t.Context(), loadSharder(t), helm.Release{Chart: "sharder", Name: "s", Namespace: "default"}, nil)
	assert.ErrorContains(t, err, "needs a namespace of its own")
	for _, given := range []string{
		"{priorityClassName: '', nodeSelector: {a: b}, affinity: {nodeAffinity: {}}, tolerations: [{key: a}]}",
		"{image: {registry: r.example.com, tag: v1, pullSecrets: [{name: s}]}, podAnnotations: {a: b}, commonLabels: {team: x}, networkPolicy: {apiServerPorts: [7443]}}",
	} {
		_, _, err := helm.Render(t.Context(), loadSharder(t), sharderSystem, values(t, given))
		assert.NoError(t, err, given)
	}
}

// TestSharderIsScheduledAsItsValuesRequest checks that a constraint gets the selector of the pods
// unless it has one.
func TestSharderIsScheduledAsItsValuesRequest(t *testing.T) {
	pod := func(given string) corev1.PodSpec {
		rendered, _, err := helm.Render(t.Context(), loadSharder(t), sharderSystem, values(t, given))
		require.NoError(t, err)
		for _, obj := range rendered {
			if obj.GetKind() == "Deployment" {
				var d appsv1.Deployment
				require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &d))
				return d.Spec.Template.Spec
			}
		}
		require.Fail(t, "there is no Deployment")
		return corev1.PodSpec{}
	}
	own := map[string]string{"app.kubernetes.io/name": "sharder", "app.kubernetes.io/part-of": "sharder"}
	spread := pod(`{topologySpreadConstraints: [{topologyKey: rack, maxSkew: 2, whenUnsatisfiable: DoNotSchedule},
		{topologyKey: hall, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}]}`).TopologySpreadConstraints
	assert.Equal(t, []corev1.TopologySpreadConstraint{
		{
			TopologyKey: "rack", MaxSkew: 2, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: own}, MatchLabelKeys: []string{"pod-template-hash"},
		},
		{TopologyKey: "hall", MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
	}, spread)
	none := pod(`{topologySpreadConstraints: [], priorityClassName: ""}`)
	assert.Empty(t, none.TopologySpreadConstraints)
	assert.Empty(t, none.PriorityClassName)
}

// TestTheLifeOfASharder installs the chart with its CRD, upgrades it, and uninstalls it, which keeps the
// CRD.
func TestTheLifeOfASharder(t *testing.T) {
	c, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	h := &helmCommand{t: t, client: c, chart: loadSharder(t), name: "sharder", namespace: sharderSystem.Namespace}
	require.NoError(t, h.install(nil, false))
	require.NoError(t, h.upgrade(values(t, "{replicas: 3}"), false))
	assert.True(t, h.exists("apps/v1", "Deployment", sharderSystem.Namespace, "sharder"))
	require.NoError(t, h.uninstall())
	assert.False(t, h.exists("apps/v1", "Deployment", sharderSystem.Namespace, "sharder"))
	assert.True(t, h.exists("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "clusterrings.sharding.nodekeeper.dev"))
	assert.True(t, h.exists("v1", "Namespace", "", sharderSystem.Namespace))
}
