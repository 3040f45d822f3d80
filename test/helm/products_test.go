package helm_test

import (
	"maps"
	"os"
	"path"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/hack/helm"
	"nodekeeper.dev/hack/manifests"
)

// product is a product beside the label keeper, with a chart of its own.
type product struct {
	deploy     string // the directory of its manifests
	release    helm.Release
	deployment string
	// adds has the values that have the effect of a directory or a component of the manifests.
	adds map[string]string
	// notes is part of what the chart prints after an installation.
	notes string
	// refuses has what an error mentions of values that no other product has.
	refuses map[string]string
}

var (
	sharder = product{
		deploy: filepath.Join("..", "..", "sharding", "deploy"), deployment: "sharder",
		release: helm.Release{Chart: "sharder", Name: "sharder", Namespace: "sharder-system"},
		adds:    map[string]string{"monitoring": "{monitoring: {enabled: true}}"},
		notes:   "kubectl delete rings --all",
		refuses: map[string]string{
			"{extraArgs: [--namespace=x]}":                     "use the namespace of the release",
			"{replicas: 1, extraArgs: [--leader-elect=false]}": "--leader-elect is not for extraArgs",
			"{extraArgs: ['--metrics-bind-address=:9090']}":    "--metrics-bind-address is not for extraArgs",
			"{extraArgs: [sync-period=1m]}":                    "/extraArgs/0",
		},
	}
	placement = product{
		deploy: filepath.Join("..", "..", "placement", "deploy"), deployment: "placement-controller",
		release: helm.Release{Chart: "placement", Name: "placement", Namespace: "placement-system"},
		adds:    map[string]string{"monitoring": "{monitoring: {enabled: true}}", "components/lease-owner": "{leaseOwnerPolicy: true}"},
		notes:   "BEFORE helm uninstall, delete the pods of the pools.",
		refuses: map[string]string{
			"{verbosity: -1}": "/verbosity",
			"{commonLabels: {placement.nodekeeper.dev/pool: worker}}": "invalid propertyName",
		},
	}
)

// products are those beside the label keeper.
var products = []product{sharder, placement}

func (p product) dir() string { return filepath.Join(p.deploy, "chart", p.release.Chart) }

func (p product) load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := helm.Load(p.dir())
	require.NoError(t, err)
	return c
}

// render returns the objects and the notes of the chart with these values.
func (p product) render(t *testing.T, given map[string]any) (objects []*unstructured.Unstructured, notes string) {
	t.Helper()
	objects, notes, err := helm.Render(t.Context(), p.load(t), p.release, given)
	require.NoError(t, err)
	return objects, notes
}

// pods returns the template of the pods with these values.
func (p product) pods(t *testing.T, given string) corev1.PodTemplateSpec {
	t.Helper()
	rendered, _ := p.render(t, values(t, given))
	for _, obj := range rendered {
		if obj.GetKind() == "Deployment" {
			var d appsv1.Deployment
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, &d, true))
			require.Equal(t, p.deployment, d.Name)
			return d.Spec.Template
		}
	}
	require.Fail(t, "there is no Deployment")
	return corev1.PodTemplateSpec{}
}

// TestChartsOfProductsAreTheirManifests checks the defaults, each addition, and all together.
func TestChartsOfProductsAreTheirManifests(t *testing.T) {
	for _, p := range products {
		t.Run(p.release.Chart, func(t *testing.T) {
			from, err := manifests.Load(p.deploy)
			require.NoError(t, err)
			same := func(given map[string]any, paths ...string) {
				want, err := from.Render(manifests.Kustomization(paths...))
				require.NoError(t, err)
				rendered, notes := p.render(t, given)
				require.NoError(t, helm.Same(p.release, "0.0.0-dev", "dev", rendered, want), "%v", paths)
				assert.Contains(t, notes, p.notes)
				for _, message := range lint.RunAll(p.dir(), given, p.release.Namespace).Messages {
					assert.LessOrEqual(t, message.Severity, support.InfoSev, message.Error()) // it recommends an icon
				}
			}
			same(nil, "base")
			for overlay, file := range overlays(t, p.deploy, p.dir()) {
				given, err := helm.Values(file)
				require.NoError(t, err)
				same(given, path.Join("overlays", overlay))
			}
			all, paths := map[string]any{}, []string{"base"}
			for dir, text := range p.adds {
				same(values(t, text), "base", dir)
				maps.Copy(all, values(t, text))
				paths = append(paths, dir)
			}
			same(all, paths...)
		})
	}
}

func TestChartOfTheSharderHasTheCRD(t *testing.T) {
	const file = "sharding.nodekeeper.dev_clusterrings.yaml"
	want, err := os.ReadFile(filepath.Join(sharder.deploy, "crd", file))
	require.NoError(t, err)
	has, err := os.ReadFile(filepath.Join(sharder.dir(), "crds", file))
	require.NoError(t, err)
	assert.Equal(t, string(want), string(has), "make generate copies it")
}

// TestProductsAreInTheNamespaceOfTheirRelease renders them for another namespace than that of the
// manifests.
func TestProductsAreInTheNamespaceOfTheirRelease(t *testing.T) {
	for _, p := range products {
		t.Run(p.release.Chart, func(t *testing.T) {
			for _, given := range p.adds {
				elsewhere := helm.Release{Chart: p.release.Chart, Name: "s", Namespace: "elsewhere"}
				rendered, notes, err := helm.Render(t.Context(), p.load(t), elsewhere, values(t, given))
				require.NoError(t, err)
				assert.NotContains(t, notes, p.release.Namespace)
				for _, obj := range rendered {
					if obj.GetKind() == "PrometheusRule" || obj.GetName() == p.release.Chart+"-dashboard" {
						assert.Equal(t, "elsewhere", obj.GetNamespace())
						continue
					}
					text, err := obj.MarshalJSON()
					require.NoError(t, err)
					assert.NotContains(t, string(text), p.release.Namespace, "%s %s", obj.GetKind(), obj.GetName())
				}
			}
		})
	}
}

// TestProductsRefuseSettingsThatCannotWork checks the schemas and the checks of the charts.
func TestProductsRefuseSettingsThatCannotWork(t *testing.T) {
	refused := map[string]string{
		"{replicas: -1}":                         "/replicas",
		"{replica: 1}":                           "replica",
		"{commonLabels: {helm.sh/chart: mine}}":  "invalid propertyName",
		"{networkPolicy: {apiServerPorts: [0]}}": "/networkPolicy/apiServerPorts/0",
		"{affinity: {nodeAffinty: {}}}":          "nodeAffinty",
		"{tolerations: [{keys: a}]}":             "keys",
		"{topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}": "topologyKey",
	}
	for _, p := range products {
		t.Run(p.release.Chart, func(t *testing.T) {
			for _, of := range []map[string]string{refused, p.refuses} {
				for given, want := range of {
					_, _, err := helm.Render(t.Context(), p.load(t), p.release, values(t, given))
					assert.ErrorContains(t, err, want, given)
				}
			}
			_, _, err := helm.Render(t.Context(), p.load(t), helm.Release{Chart: p.release.Chart, Name: "s", Namespace: "default"}, nil)
			assert.ErrorContains(t, err, "needs a namespace of its own")
		})
	}
}

// TestPodsOfProductsAreAsTheValuesRequest sets each value of the pods. A constraint gets the selector
// of the pods unless it has one.
func TestPodsOfProductsAreAsTheValuesRequest(t *testing.T) {
	for _, p := range products {
		t.Run(p.release.Chart, func(t *testing.T) {
			own := p.pods(t, "{}").Labels
			pod := p.pods(t, `{topologySpreadConstraints: [{topologyKey: rack, maxSkew: 2, whenUnsatisfiable: DoNotSchedule},
				{topologyKey: hall, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}],
				nodeSelector: {a: b}, affinity: {nodeAffinity: {}}, tolerations: [{key: a}], podAnnotations: {c: d}, commonLabels: {team: x}, resources: {limits: {memory: 1Gi}},
				image: {registry: r.example.com/, tag: v1, pullPolicy: Always, pullSecrets: [{name: s}]}}`)
			assert.Equal(t, []corev1.TopologySpreadConstraint{
				{
					TopologyKey: "rack", MaxSkew: 2, WhenUnsatisfiable: corev1.DoNotSchedule,
					LabelSelector: &metav1.LabelSelector{MatchLabels: own}, MatchLabelKeys: []string{"pod-template-hash"},
				},
				{TopologyKey: "hall", MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
			}, pod.Spec.TopologySpreadConstraints)
			assert.Equal(t, own, pod.Labels, "commonLabels are not for pods")
			assert.Equal(t, map[string]string{"c": "d"}, pod.Annotations)
			assert.Equal(t, map[string]string{"a": "b"}, pod.Spec.NodeSelector)
			assert.NotNil(t, pod.Spec.Affinity.NodeAffinity)
			assert.Equal(t, "a", pod.Spec.Tolerations[len(pod.Spec.Tolerations)-1].Key)
			assert.Equal(t, []corev1.LocalObjectReference{{Name: "s"}}, pod.Spec.ImagePullSecrets)
			container := pod.Spec.Containers[0]
			assert.Equal(t, "r.example.com/nodekeeper-"+p.release.Chart+":v1", container.Image)
			assert.Equal(t, corev1.PullAlways, container.ImagePullPolicy)
			assert.Equal(t, "1Gi", container.Resources.Limits.Memory().String())

			none := p.pods(t, `{topologySpreadConstraints: [], priorityClassName: "", image: {digests: {`+p.release.Chart+`: "sha256:`+strings.Repeat("0", 64)+`"}}}`).Spec
			assert.Empty(t, none.TopologySpreadConstraints)
			assert.Empty(t, none.PriorityClassName)
			assert.Contains(t, none.Containers[0].Image, ":dev@sha256:0")
		})
	}
}

// TestPartsOfProductsCanBeLeftOut: the namespace and the NetworkPolicy, whose ports can be more.
func TestPartsOfProductsCanBeLeftOut(t *testing.T) {
	for _, p := range products {
		t.Run(p.release.Chart, func(t *testing.T) {
			all, _ := p.render(t, values(t, "{networkPolicy: {apiServerPorts: [7443]}, commonLabels: {team: x}}"))
			kept := map[string]bool{}
			less, _ := p.render(t, values(t, "{namespace: {create: false}, networkPolicy: {enabled: false}}"))
			for _, obj := range less {
				kept[obj.GetKind()] = true
			}
			for _, obj := range all {
				assert.Equal(t, "x", obj.GetLabels()["team"], obj.GetKind())
				leftOut := obj.GetKind() == "Namespace" || obj.GetKind() == "NetworkPolicy"
				assert.Equal(t, !leftOut, kept[obj.GetKind()], obj.GetKind())
				if obj.GetKind() == "NetworkPolicy" {
					text, err := obj.MarshalJSON()
					require.NoError(t, err)
					assert.Contains(t, string(text), `{"port":7443,"protocol":"TCP"}`)
				}
			}
		})
	}
}

// lives installs the chart, upgrades it, and uninstalls it, which keeps the namespace.
func (p product) lives(t *testing.T, given, changed string) *helmCommand {
	t.Helper()
	c, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	h := &helmCommand{t: t, client: c, chart: p.load(t), name: p.release.Name, namespace: p.release.Namespace}
	require.NoError(t, h.install(values(t, given), false))
	require.NoError(t, h.upgrade(values(t, changed), false))
	assert.True(t, h.exists("apps/v1", "Deployment", h.namespace, p.deployment))
	return h
}

// dies uninstalls the chart, which keeps the namespace.
func (p product) dies(t *testing.T, h *helmCommand) {
	t.Helper()
	require.NoError(t, h.uninstall())
	assert.False(t, h.exists("apps/v1", "Deployment", h.namespace, p.deployment))
	assert.True(t, h.exists("v1", "Namespace", "", h.namespace))
}

// TestTheLifeOfASharder installs the chart with its CRD, which stays.
func TestTheLifeOfASharder(t *testing.T) {
	h := sharder.lives(t, "{}", "{replicas: 3}")
	sharder.dies(t, h)
	assert.True(t, h.exists("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "clusterrings.sharding.nodekeeper.dev"))
}
