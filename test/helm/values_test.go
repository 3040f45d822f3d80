package helm_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/hack/helm"
	"nodekeeper.dev/hack/manifests"
)

// values parses values in YAML.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	var all map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &all))
	return all
}

// deployments returns the Deployments of the chart with these values, by name.
func deployments(t *testing.T, text string) map[string]*appsv1.Deployment {
	t.Helper()
	all := map[string]*appsv1.Deployment{}
	for _, obj := range objects(t, values(t, text)) {
		if obj.GetKind() == "Deployment" {
			d := &appsv1.Deployment{}
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, d, true))
			all[d.Name] = d
		}
	}
	return all
}

func TestHelmFindsNothingToComplainOf(t *testing.T) {
	for _, file := range []string{"values-ha.yaml", "values-minikube.yaml"} {
		given, err := helm.Values(filepath.Join(chartDir, file))
		require.NoError(t, err)
		for _, message := range lint.RunAll(chartDir, given, compared.Namespace).Messages {
			assert.LessOrEqual(t, message.Severity, support.InfoSev, message.Error()) // it recommends an icon
		}
	}
}

// TestFlagsReachTheProgramsTheyAreFor also checks their order, in which later flags override
// earlier ones.
func TestFlagsReachTheProgramsTheyAreFor(t *testing.T) {
	found := deployments(t, `{admission: {enabled: true}, retention: {enabled: true, period: 48h},
		extraArgs: [--a], restoreArgs: [--b], watcher: {extraArgs: [--w]}, processor: {extraArgs: [--p]}, webhook: {extraArgs: ["--x=y: z"]}}`)
	for name, want := range map[string][]string{
		"watcher":   {"--a", "--w"},
		"processor": {"--retention=48h", "--a", "--b", "--p"},
		"webhook":   {"--a", "--b", "--x=y: z"},
	} {
		assert.Equal(t, want, found[name].Spec.Template.Spec.Containers[0].Args[4:], name)
	}
}

func TestImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for name, tc := range map[string]struct{ values, want string }{
		"of this machine":   {`{}`, "nodekeeper-watcher:dev"},
		"of a registry":     {`{image: {registry: example.com/a, tag: v1}}`, "example.com/a/nodekeeper-watcher:v1"},
		"with a slash":      {`{image: {registry: example.com/}}`, "example.com/nodekeeper-watcher:dev"},
		"by digest":         {`{image: {digests: {watcher: "` + digest + `"}}}`, "nodekeeper-watcher:dev@" + digest},
		"by a tag of yours": {`{image: {tag: v2, digests: {watcher: "` + digest + `"}}}`, "nodekeeper-watcher:v2"},
		"by a tag like 1.0": {`{image: {tag: "1.0"}}`, "nodekeeper-watcher:1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, deployments(t, tc.values)["watcher"].Spec.Template.Spec.Containers[0].Image)
		})
	}
}

func TestPodsRunWhereTheValuesRequest(t *testing.T) {
	for name, d := range deployments(t, `{admission: {enabled: true}, nodeSelector: {pool: system}, podAnnotations: {a: "1"},
		tolerations: [{key: dedicated, operator: Exists}], image: {pullPolicy: Always, pullSecrets: [{name: registry}]}, commonLabels: {team: x}}`) {
		pod := d.Spec.Template
		assert.Equal(t, map[string]string{"pool": "system"}, pod.Spec.NodeSelector, name)
		assert.Equal(t, map[string]string{"a": "1"}, pod.Annotations, name)
		assert.Equal(t, "dedicated", pod.Spec.Tolerations[len(pod.Spec.Tolerations)-1].Key, name)
		assert.Equal(t, "registry", pod.Spec.ImagePullSecrets[0].Name, name)
		assert.EqualValues(t, "Always", pod.Spec.Containers[0].ImagePullPolicy, name)
		assert.Equal(t, "x", d.Labels["team"], name)
		assert.Len(t, d.Spec.Selector.MatchLabels, 2, "a selector cannot be changed, so it has no label of Helm")
	}
}

// TestPodsAreScheduledAsTheValuesRequest: a constraint of the user's own has the user's own
// selector.
func TestPodsAreScheduledAsTheValuesRequest(t *testing.T) {
	for name, d := range deployments(t, `{admission: {enabled: true}, priorityClassName: "123", affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}},
		topologySpreadConstraints: [{topologyKey: rack, maxSkew: 2, whenUnsatisfiable: DoNotSchedule},
			{topologyKey: row, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: []},
			{topologyKey: hall, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}]}`) {
		pod := d.Spec.Template.Spec
		assert.Equal(t, "123", pod.PriorityClassName, name)
		assert.NotNil(t, pod.Affinity.PodAntiAffinity, name)
		if assert.Len(t, pod.TopologySpreadConstraints, 3, name) {
			own, all, theirs := pod.TopologySpreadConstraints[0], pod.TopologySpreadConstraints[1], pod.TopologySpreadConstraints[2]
			assert.Equal(t, d.Spec.Selector.MatchLabels, all.LabelSelector.MatchLabels, name)
			assert.Empty(t, all.MatchLabelKeys, name)
			assert.Equal(t, d.Spec.Selector.MatchLabels, own.LabelSelector.MatchLabels, name)
			assert.Equal(t, []string{"pod-template-hash"}, own.MatchLabelKeys, name)
			assert.EqualValues(t, 2, own.MaxSkew, name)
			assert.Equal(t, map[string]string{"a": "b"}, theirs.LabelSelector.MatchLabels, name)
			assert.Empty(t, theirs.MatchLabelKeys, name)
		}
	}
	for name, d := range deployments(t, `{topologySpreadConstraints: [], priorityClassName: ""}`) {
		assert.Empty(t, d.Spec.Template.Spec.TopologySpreadConstraints, name)
		assert.Empty(t, d.Spec.Template.Spec.PriorityClassName, name)
	}
}

// TestMonitoringHasTheLabelsThatPrometheusSelects: the operator's own chart selects by its release.
func TestMonitoringHasTheLabelsThatPrometheusSelects(t *testing.T) {
	given := values(t, `{monitoring: {enabled: true, labels: {release: kube-prometheus-stack, team: monitoring}}, commonLabels: {team: blue}}`)
	ofSharder, _ := sharder.render(t, given)
	ofPlacement, _ := placement.render(t, given)
	found := 0
	for _, obj := range slices.Concat(objects(t, given), ofSharder, ofPlacement) {
		selected := obj.GetKind() == "PodMonitor" || obj.GetKind() == "PrometheusRule"
		assert.Equal(t, selected, obj.GetLabels()["release"] != "", "%s %s", obj.GetKind(), obj.GetName())
		if team := obj.GetLabels()["team"]; selected {
			assert.Equal(t, "monitoring", team, obj.GetKind())
		} else {
			assert.Equal(t, "blue", team, "%s %s", obj.GetKind(), obj.GetName())
		}
		if selected {
			found++
		}
	}
	assert.Equal(t, 6, found)
}

// TestNamespacesCanHaveOtherNames renders the complete base with replaced names, including a
// number.
func TestNamespacesCanHaveOtherNames(t *testing.T) {
	want, err := tree(t).YAML(manifests.Kustomization("base", "components/admission", "components/cert-manager", "monitoring", "users", "ui"))
	require.NoError(t, err)
	text := string(want)
	for from, to := range map[string]string{"node-metadata-transactions": "1234", "nodekeeper-system": "programs"} {
		text = strings.ReplaceAll(text, from, to)
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, "node-metadata", "saved"), ": 1234\n", ": \"1234\"\n")
	text = strings.ReplaceAll(text, "- 1234\n", "- \"1234\"\n")
	c := load(t)
	elsewhere := helm.Release{Chart: name, Name: "x", Namespace: "programs"}
	has, notes, err := helm.Render(t.Context(), c, elsewhere, values(t, `{namespaces: {transactions: "1234", records: saved},
		admission: {enabled: true, certManager: true}, monitoring: {enabled: true}, users: {enabled: true}, ui: {enabled: true}}`))
	require.NoError(t, err)
	objects, err := helm.Decode([]byte(text))
	require.NoError(t, err)
	assert.NoError(t, helm.Same(elsewhere, "0.0.0-dev", "dev", has, objects))
	assert.Contains(t, notes, "--membership-namespace=programs --transaction-namespace=1234 --metadata-namespace=saved")
}

func TestNotesMentionThatSavedLabelsStay(t *testing.T) {
	c := load(t)
	_, notes, err := helm.Render(t.Context(), c, compared, nil)
	require.NoError(t, err)
	assert.Contains(t, notes, "SAVED LABELS SURVIVE helm uninstall")
	assert.NotContains(t, notes, "FINALIZER")
	assert.NotContains(t, notes, "--membership-namespace")
	_, notes, err = helm.Render(t.Context(), c, compared, values(t, `{protection: {enabled: true}, admission: {enabled: true, gate: true}}`))
	require.NoError(t, err)
	assert.Contains(t, notes, "THE FINALIZER nodekeeper.dev/save-labels STAYS")
	assert.Contains(t, notes, "Without a processor")
}

func TestWhatCannotWorkIsRefused(t *testing.T) {
	c := load(t)
	for name, tc := range map[string]struct {
		values, namespace, kube, want string
	}{
		"a value that is none":       {values: `{retention: {perod: 1h}}`, want: "perod"},
		"a wrong type":               {values: `{watcher: {replicas: two}}`, want: "watcher"},
		"no duration":                {values: `{retention: {period: 30d}}`, want: "period"},
		"no retention":               {values: `{retention: {enabled: true, period: 0h}}`, want: "retention.period must be more than 0"},
		"retention of no time":       {values: `{retention: {enabled: true, period: 1ns}}`, want: "/retention/period"},
		"a value that is removed":    {values: `{watcher: {replicas: null}}`, want: "missing property 'replicas'"},
		"the URL of a registry":      {values: `{image: {registry: "https://example.com"}}`, want: "/image/registry"},
		"a secret without a name":    {values: `{image: {pullSecrets: [{name: ""}]}}`, want: "/image/pullSecrets/0/name"},
		"the cluster's namespace":    {values: `{namespaces: {records: kube-system}}`, want: "need namespaces of their own, and not kube-system"},
		"a namespace in a flag":      {values: `{extraArgs: ["--metadata-namespace=other"]}`, want: "use namespaces.records"},
		"a namespace of the page":    {values: `{ui: {extraArgs: ["--metadata-namespace=other"]}}`, want: "use namespaces.records"},
		"a label of the chart":       {values: `{commonLabels: {app.kubernetes.io/part-of: mine}}`, want: "app.kubernetes.io/part-of"},
		"a toleration that is none":  {values: `{tolerations: [{keys: a}]}`, want: "keys"},
		"an alias of YAML":           {values: `{image: {registry: "&a"}}`, want: "/image/registry"},
		"a spread that is none":      {values: `{topologySpreadConstraints: [{topologyKey: a, maxSkew: 1, whenUnsatisfiable: Never}]}`, want: "whenUnsatisfiable"},
		"rights that are missing":    {values: `{processor: {extraArgs: [--protect=finalizer]}}`, want: "use protection"},
		"no digest":                  {values: `{image: {digests: {watcher: latest}}}`, want: "digests"},
		"an affinity that is none":   {values: `{affinity: {nodeAffinty: {}}}`, want: "nodeAffinty"},
		"a spread of nothing":        {values: `{topologySpreadConstraints: [{maxSkew: 1}]}`, want: "topologyKey"},
		"no flag":                    {values: `{extraArgs: [verbose]}`, want: "extraArgs"},
		"the default namespace":      {namespace: "default", want: "a namespace of its own"},
		"one namespace for two":      {values: `{namespaces: {records: nodekeeper-system}}`, want: "three different namespaces"},
		"a gate without webhooks":    {values: `{admission: {gate: true}}`, want: "need admission.enabled"},
		"two affinities":             {values: `{controlPlaneOnly: true, affinity: {podAffinity: {}}}`, want: "controlPlaneOnly sets the pods' affinity"},
		"a policy alone":             {values: `{protection: {policy: true}}`, want: "needs protection.enabled"},
		"policies of newer clusters": {kube: "v1.29.4", want: "Kubernetes v1.29.4 has no admission policies"},
		"mutating policies":          {values: `{gatePolicy: true}`, kube: "v1.35.0", want: "has no MutatingAdmissionPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			r := helm.Release{Name: "nodekeeper", Namespace: tc.namespace, KubeVersion: tc.kube}
			if r.Namespace == "" {
				r.Namespace = compared.Namespace
			}
			_, _, err := helm.Render(t.Context(), c, r, values(t, tc.values))
			assert.ErrorContains(t, err, tc.want)
		})
	}
	_, _, err := helm.Render(t.Context(), c, helm.Release{Name: "nodekeeper", Namespace: "n", KubeVersion: "v1.28.0-eks-1"}, values(t, `{admissionPolicies: false}`))
	assert.NoError(t, err)
}

// TestSchemaKnowsEveryValue checks that the schema of each chart contains every value, and no
// others.
func TestSchemaKnowsEveryValue(t *testing.T) {
	for _, dir := range chartDirs {
		var schema map[string]any
		content, err := os.ReadFile(filepath.Join(dir, "values.schema.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, &schema))
		given, err := helm.Values(filepath.Join(dir, "values.yaml"))
		require.NoError(t, err)
		definitions, _ := schema["definitions"].(map[string]any)
		checkSchema(t, "", definitions, schema, given)
	}
}

// checkSchema checks all objects with a fixed set of fields, except those of Kubernetes.
func checkSchema(t *testing.T, path string, definitions, schema map[string]any, given any) {
	t.Helper()
	if ref, isRef := schema["$ref"].(string); isRef {
		schema, _ = definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
	}
	properties, fixed := schema["properties"].(map[string]any)
	if !fixed || strings.HasSuffix(path, ".resources") || path == ".affinity" {
		return
	}
	assert.Equal(t, false, schema["additionalProperties"], path)
	fields, _ := given.(map[string]any)
	for name := range fields {
		assert.Contains(t, properties, name, path)
	}
	for name, property := range properties {
		if path == "" && name == "global" { // Helm adds it to every chart
			continue
		}
		if assert.Contains(t, fields, name, "values.yaml%s", path) {
			of, _ := property.(map[string]any)
			checkSchema(t, path+"."+name, definitions, of, fields[name])
		}
	}
}
