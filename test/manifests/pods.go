package manifests

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CheckSelectors checks that one budget and one network policy select the pods of a Deployment, and
// that the pods are spread over zones and nodes. A selector that matches nothing has no effect, and
// is not an error.
func CheckSelectors(t *testing.T, objects []Object, d *appsv1.Deployment) {
	t.Helper()
	selects := func(s *metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		return selector.Matches(labels.Set(d.Spec.Template.Labels))
	}
	budgets := slices.DeleteFunc(All[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget"),
		func(b policyv1.PodDisruptionBudget) bool { return !selects(b.Spec.Selector) })
	assert.Len(t, budgets, 1, "budgets of %s", d.Name)
	policies := slices.DeleteFunc(All[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy"),
		func(p networkingv1.NetworkPolicy) bool { return !selects(&p.Spec.PodSelector) })
	assert.Len(t, policies, 1, "network policies of %s", d.Name)
	var spread []string
	for _, constraint := range d.Spec.Template.Spec.TopologySpreadConstraints {
		assert.True(t, selects(constraint.LabelSelector), "%s is spread over %s", d.Name, constraint.TopologyKey)
		spread = append(spread, constraint.TopologyKey)
	}
	assert.ElementsMatch(t, []string{corev1.LabelTopologyZone, corev1.LabelHostname}, spread, "what %s is spread over", d.Name)
}

// CheckHardening checks settings of a Deployment that the restricted Pod Security Standard does not
// require. The only volumes are ConfigMaps, with the names that the caller gives.
func CheckHardening(t *testing.T, d *appsv1.Deployment, configMaps ...string) {
	t.Helper()
	pod := d.Spec.Template.Spec
	assert.Equal(t, "system-cluster-critical", pod.PriorityClassName)
	var mounted []string
	for _, v := range pod.Volumes {
		if assert.NotNil(t, v.ConfigMap, "%s: a program keeps nothing on disk", v.Name) {
			mounted = append(mounted, v.ConfigMap.Name)
		}
	}
	assert.ElementsMatch(t, configMaps, mounted, "the ConfigMaps that %s mounts", d.Name)
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]
	assert.Equal(t, new(true), c.SecurityContext.ReadOnlyRootFilesystem)
	assert.False(t, c.Resources.Requests.Cpu().IsZero(), "a CPU request")
	assert.False(t, c.Resources.Requests.Memory().IsZero(), "a memory request")
	assert.False(t, c.Resources.Limits.Memory().IsZero(), "a memory limit")
	assert.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
	assert.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
	update := d.Spec.Strategy.RollingUpdate
	assert.Zero(t, update.MaxUnavailable.IntValue(), "the old pod goes when the new one works")
}

// GrantQuotas sets the status of the quotas, as kube-controller-manager does.
func GrantQuotas(t *testing.T, c client.Client) {
	t.Helper()
	var quotas corev1.ResourceQuotaList
	require.NoError(t, c.List(t.Context(), &quotas))
	require.NotEmpty(t, quotas.Items)
	for i := range quotas.Items {
		q := &quotas.Items[i]
		q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{}
		for name := range q.Spec.Hard {
			q.Status.Used[name] = resource.Quantity{}
		}
		require.NoError(t, c.Status().Update(t.Context(), q))
	}
}

// PodOf returns a pod as the controllers create it from a Deployment.
func PodOf(d *appsv1.Deployment) *corev1.Pod {
	meta := *d.Spec.Template.ObjectMeta.DeepCopy()
	meta.Namespace, meta.GenerateName = d.Namespace, d.Name+"-"
	return &corev1.Pod{ObjectMeta: meta, Spec: *d.Spec.Template.Spec.DeepCopy()}
}
