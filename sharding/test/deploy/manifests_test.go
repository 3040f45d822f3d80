package deploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/reference"
)

// deploymentIn returns the Deployment in manifests.
func deploymentIn(t *testing.T, objects []manifests.Object) *appsv1.Deployment {
	t.Helper()
	found := manifests.All[appsv1.Deployment](t, objects, "Deployment")
	require.Len(t, found, 1)
	return &found[0]
}

func TestOverlaysSetTheReplicas(t *testing.T) {
	for dir, replicas := range map[string]int32{base: 2, ha: 3} {
		objects := manifests.Render(t, dir)
		d := deploymentIn(t, objects)
		assert.Equal(t, &replicas, d.Spec.Replicas, dir)
		manifests.CheckSelectors(t, objects, d)
		manifests.CheckHardening(t, d)
		budget := manifests.All[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget")[0]
		assert.Nil(t, budget.Spec.MinAvailable, "with it a single replica would stop a drain")
		assert.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
	}
}

// The sharder knows the flags in args, and the ports of the probes and the metrics are its defaults.
func TestSharderKnowsItsManifests(t *testing.T) {
	flags, err := programs.Flags(t.Context(), "sharder")
	require.NoError(t, err)
	container := deploymentIn(t, manifests.Render(t, base)).Spec.Template.Spec.Containers[0]
	for _, arg := range container.Args {
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		assert.Contains(t, flags, name)
		if hasValue {
			assert.Equal(t, flags[name].DefaultValue(), value, name)
		}
	}
	for i, name := range []string{"metrics-bind-address", "health-probe-bind-address", "webhook-bind-address"} {
		assert.Equal(t, fmt.Sprintf(":%d", container.Ports[i].ContainerPort), flags[name].DefaultValue())
	}
}

// TestExampleIsAggregated checks the label that the owners of rings use.
func TestExampleIsAggregated(t *testing.T) {
	roles := manifests.All[rbacv1.ClusterRole](t, manifests.Render(t, base), "ClusterRole")
	var into []string
	for _, role := range roles {
		for _, obj := range manifests.Render(t, example) {
			if obj.GetKind() == "ClusterRole" && manifests.Selects(&role, obj.GetLabels()) {
				into = append(into, role.Name)
			}
		}
	}
	assert.Equal(t, []string{"sharder-rings"}, into)
}

// Pods must comply with the Pod Security Standard, and are also admitted where critical pods need a
// quota, as on GKE. Applying an overlay twice, or over another one, changes nothing else.
func TestPodsAreAdmitted(t *testing.T) {
	s := newStory(t)
	s.kubectl("apply", "--server-side", "-k", base)
	s.kubectl("apply", "--server-side", "-k", ha)
	manifests.GrantQuotas(t, s.Client)
	d := deploymentIn(t, manifests.Render(t, ha))
	require.NoError(t, s.Create(t.Context(), manifests.PodOf(d), client.DryRunAll))
	lax := manifests.PodOf(d)
	lax.Spec.SecurityContext.RunAsNonRoot = new(false)
	assert.True(t, apierrors.IsForbidden(s.Create(t.Context(), lax, client.DryRunAll)), "only restricted pods are admitted")
}

// A sharder without the CRD waits, and its probe names the reason. The ring's kind is the only thing
// that the overlays do not install.
func TestProbeNamesTheReason(t *testing.T) {
	s := newStory(t)
	require.NoError(t, s.Delete(t.Context(), bindingOf("sharder")))
	t.Cleanup(func() { s.kubectl("apply", "--server-side", "-k", ha) })
	p := s.startSharder("unready", nil)
	s.eventually(func(c *assert.CollectT) {
		status, body, err := p.Last().Probe(t.Context(), "/readyz")
		require.NoError(c, err)
		assert.Equal(c, 500, status)
		assert.Contains(c, body, "this identity may not")
		assert.Contains(c, body, "patch clusterrings/status."+v1alpha1.GroupName)
	}, "the probe names the missing rights")
	s.kubectl("apply", "--server-side", "-k", ha)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.WaitReady(ctx))
}

func bindingOf(name string) client.Object {
	binding := &rbacv1.ClusterRoleBinding{}
	binding.Name = name
	return binding
}

func TestMonitoringRenders(t *testing.T) {
	kinds := map[string]int{}
	for _, obj := range manifests.Render(t, monitoring) {
		kinds[obj.GetKind()]++
		assert.Equal(t, system, obj.GetNamespace(), obj.GetKind())
	}
	assert.Equal(t, map[string]int{"PodMonitor": 1, "PrometheusRule": 1, "ConfigMap": 1}, kinds)
}

// TestReferenceHasTheAlerts compares the page of the alerts with the rules. test/monitoring checks that
// each has a section.
func TestReferenceHasTheAlerts(t *testing.T) {
	reference.Check(t, "sharding/docs/alerts.md", "alerts", reference.Alerts(t, "sharding/deploy/monitoring/rules.yaml"))
}
