package deploy_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/programs"
)

// The components that a kustomization can add to one of the directories.
const (
	withRetention  = "components/retention"
	withProtection = "components/protection"
	controlPlane   = "components/control-plane"
	noPolicies     = "components/no-admission-policies"

	withTaints      = "components/preserve-taints"
	withAnnotations = "components/preserve-annotations"

	withAdmission   = "components/admission"
	withGate        = "components/gate"
	withCertManager = "components/cert-manager"
)

// variant is a directory with components.
type variant struct {
	dir        string
	components []string
}

// variants are the tested variants: every directory, the base with each component, and the base
// with all of them.
var variants = []variant{
	{base, nil},
	{minikube, nil},
	{ha, nil},
	{base, []string{withRetention}},
	{base, []string{withProtection}},
	{base, []string{controlPlane}},
	{base, []string{noPolicies}},
	{base, []string{withTaints}},
	{base, []string{withAnnotations}},
	{base, []string{withTaints, noPolicies, withAnnotations}},
	{base, []string{withAdmission}},
	{base, []string{withAdmission, withGate}},
	{base, []string{withAdmission, withCertManager}},
	{base, []string{withRetention, withProtection, withAdmission, withGate, withCertManager, controlPlane, withAnnotations, withTaints}},
	{ha, []string{withProtection, controlPlane}},
	{ha, []string{withGate, withCertManager}},
}

func (v variant) String() string {
	return strings.Join(slices.Concat([]string{v.dir}, v.components), "+")
}

// all returns the components, including the directory's own.
func (v variant) all() []string {
	if v.dir == ha {
		return slices.Concat([]string{withRetention, withAdmission}, v.components)
	}
	return v.components
}

// render returns the objects that kubectl apply -k would send.
func (v variant) render(t *testing.T) []object {
	t.Helper()
	if len(v.components) == 0 {
		return render(t, v.dir)
	}
	return renderOnce(t, v.String(), func() []byte { return manifests.Kustomize(t, newOverlay(t, v.kustomization(t))) })
}

// renders returns the error of kustomize for some components of a directory.
func renders(t *testing.T, dir string, components ...string) error {
	t.Helper()
	overlay := newOverlay(t, variant{dir, components}.kustomization(t))
	return exec.CommandContext(t.Context(), "kubectl", "kustomize", overlay).Run()
}

// kustomization returns the kustomization that a user would write for the variant.
func (v variant) kustomization(t *testing.T) string {
	t.Helper()
	above := func(path string) string { return filepath.Join("..", "..", path) }
	kustomization := map[string][]string{"resources": {above(v.dir)}}
	for _, component := range v.components {
		kustomization["components"] = append(kustomization["components"], above(component))
	}
	content, err := yaml.Marshal(kustomization)
	require.NoError(t, err)
	return string(content)
}

// renderOverlay returns the objects of a kustomization in a directory beside our overlays.
func renderOverlay(t *testing.T, kustomization string) []object {
	t.Helper()
	return renderAt(t, newOverlay(t, kustomization))
}

// newOverlay creates that directory.
func newOverlay(t *testing.T, kustomization string) string {
	t.Helper()
	deploy := t.TempDir()
	require.NoError(t, os.CopyFS(deploy, os.DirFS(root)))
	overlay := filepath.Join(deploy, "overlays", "mine")
	require.NoError(t, os.Mkdir(overlay, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(kustomization), 0o600))
	return overlay
}

// The label may have any value, and the nodes have the taint of kubeadm.
func TestControlPlaneComponentSelectsControlPlaneNodes(t *testing.T) {
	t.Parallel()
	taint := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
	for _, d := range all[appsv1.Deployment](t, variant{ha, []string{controlPlane}}.render(t), "Deployment") {
		pod := manifests.PodOf(&d)
		for name, test := range map[string]struct {
			labels map[string]string
			want   bool
		}{
			"kubeadm": {map[string]string{"node-role.kubernetes.io/control-plane": ""}, true},
			"k3s":     {map[string]string{"node-role.kubernetes.io/control-plane": "true"}, true},
			"worker":  {map[string]string{"node-role.kubernetes.io/worker": ""}, false},
		} {
			assert.Equal(t, test.want, requires(t, pod).Matches(labels.Set(test.labels)), "%s on a node of %s", d.Name, name)
		}
		assert.True(t, slices.ContainsFunc(pod.Spec.Tolerations, func(one corev1.Toleration) bool {
			return one.Key == taint.Key && one.Operator == corev1.TolerationOpExists && (one.Effect == "" || one.Effect == taint.Effect)
		}), "%s tolerates %s", d.Name, taint.Key)
	}
}

// requires returns the node selector of a pod, including its required affinity.
func requires(t *testing.T, pod *corev1.Pod) labels.Selector {
	t.Helper()
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	require.Len(t, terms, 1)
	selector := &metav1.LabelSelector{}
	for _, one := range terms[0].MatchExpressions {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: one.Key, Operator: metav1.LabelSelectorOperator(one.Operator), Values: one.Values,
		})
	}
	found, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return found
}

// The flags of a processor are set without the components.
func TestFlagWithoutItsRightsNamesTheComponent(t *testing.T) {
	t.Parallel()
	s := newStory(t, variant{dir: base})
	// The API server may still have the permissions of another test.
	s.eventually(func(c *assert.CollectT) {
		p, err := programs.Start("processor", "processor-alone", s.kubeconfigOf("processor"), "--retention=720h", "--protect=finalizer")
		require.NoError(c, err)
		defer func() { assert.NoError(c, p.Kill()) }()
		ctx, cancel := context.WithTimeout(t.Context(), patience/4)
		defer cancel()
		select {
		case <-p.Done():
		case <-ctx.Done():
			require.Fail(c, "it goes on")
		}
		assert.Equal(c, 1, p.ExitCode())
		assert.Contains(c, p.Output(), "this identity may not watch nodes (deploy/components/protection grants it), "+
			"nor patch configmaps in namespace node-metadata (deploy/components/retention grants it), "+
			"nor delete configmaps in namespace node-metadata (deploy/components/retention grants it), "+
			"nor get leases.coordination.k8s.io in namespace node-metadata (deploy/components/retention grants it), "+
			"nor create leases.coordination.k8s.io in namespace node-metadata (deploy/components/retention grants it), "+
			"nor update leases.coordination.k8s.io in namespace node-metadata (deploy/components/retention grants it): grant it by a Role or ClusterRole")
	}, "it says what it lacks")
}

// documented matches the overlays in the documentation, with their indentation.
var documented = regexp.MustCompile("(?ms)^( *)```yaml\n(?: *# [^\n]*\n)?( *apiVersion: kustomize.config.k8s.io/.*?)^ *```")

// TestDocumentedOverlaysWork renders the overlays, and checks that the API server and the programs
// accept them.
func TestDocumentedOverlaysWork(t *testing.T) {
	t.Parallel()
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	flags := map[string][]string{} // by page: the flags of each program in addition to the base
	docs := filepath.Join("..", "..", "docs")
	for _, dir := range []string{"how-to", "reference", "explanation"} {
		pages, err := filepath.Glob(filepath.Join(docs, dir, "*.md"))
		require.NoError(t, err)
		for _, path := range pages {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			page := dir + "/" + filepath.Base(path)
			for _, overlay := range documented.FindAllSubmatch(content, -1) {
				shown := strings.ReplaceAll("\n"+string(overlay[2]), "\n"+string(overlay[1]), "\n")
				flags[page] = append(flags[page], takes(t, c, shown)...)
			}
		}
	}
	assert.Equal(t, map[string][]string{
		"how-to/install.md": {"processor: --retention=720h --protect=finalizer --restore-mode=merge", "webhook: --restore-mode=merge"},
		"how-to/keep-taints-and-annotations.md": {
			"processor: --retention=720h --preserve-taints=dedicated,example.com/*:NoSchedule --preserve-annotations=example.com/owner",
			"webhook: --preserve-taints=dedicated,example.com/*:NoSchedule --preserve-annotations=example.com/owner",
		},
		"how-to/protect-nodes.md":         {"processor: --protect=finalizer"},
		"how-to/retention.md":             {"processor: --retention=720h --retention=2160h"}, // the last one wins
		"how-to/size.md":                  {"processor: --retention=720h", "webhook: "},
		"how-to/use-the-webhook.md":       {"processor: ", "webhook: --gate"},
		"reference/admission-policies.md": {"processor: --retention=720h", "webhook: "}, // set by ha
	}, flags)
}

// takes checks that the API server and the programs accept an overlay, and returns the flags of its
// processors and webhooks that the base does not set.
func takes(t *testing.T, c *cluster, overlay string) []string {
	t.Helper()
	objects := renderOverlay(t, overlay)
	for _, obj := range objects {
		assert.NoError(t, apply(t, c, obj, client.DryRunAll), "%s %s of\n%s", obj.GetKind(), obj.GetName(), overlay)
	}
	var flags []string
	for _, d := range all[appsv1.Deployment](t, objects, "Deployment") {
		assert.NotEmpty(t, helpOf(t, &d))
		if d.Name != "watcher" {
			flags = append(flags, d.Name+": "+strings.Join(d.Spec.Template.Spec.Containers[0].Args[4:], " "))
		}
	}
	slices.Sort(flags)
	return flags
}
