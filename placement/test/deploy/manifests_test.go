package deploy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/programs"
)

// deployment returns the Deployment of the controller.
func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	found := manifests.All[appsv1.Deployment](t, manifests.Render(t, base), "Deployment")
	require.Len(t, found, 1)
	return &found[0]
}

// workers returns the StatefulSet of the example.
func workers(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	found := manifests.All[appsv1.StatefulSet](t, manifests.Render(t, example), "StatefulSet")
	require.Len(t, found, 1)
	return &found[0]
}

// queueServer returns the Deployment of the server of the example.
func queueServer(t *testing.T) *appsv1.Deployment {
	t.Helper()
	found := manifests.All[appsv1.Deployment](t, manifests.Render(t, example), "Deployment")
	require.Len(t, found, 1)
	return &found[0]
}

func TestControllerIsHardened(t *testing.T) {
	objects, d := manifests.Render(t, base), deployment(t)
	assert.Equal(t, new(int32(2)), d.Spec.Replicas)
	manifests.CheckSelectors(t, objects, d)
	manifests.CheckHardening(t, d, "placement-pools")
	budget := manifests.All[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget")[0]
	assert.Nil(t, budget.Spec.MinAvailable, "with it a single replica would stop a drain")
	assert.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
}

// The programs know the flags in args, and the ports of the probes and the metrics are the
// defaults.
func TestProgramsKnowTheirManifests(t *testing.T) {
	container := deployment(t).Spec.Template.Spec.Containers[0]
	flags := checkFlags(t, container.Args)
	for i, name := range []string{"metrics-bind-address", "health-probe-bind-address"} {
		assert.Equal(t, fmt.Sprintf(":%d", container.Ports[i].ContainerPort), flags[name].DefaultValue())
	}
	worker := workers(t).Spec.Template.Spec.Containers[0]
	checkFlags(t, append(worker.Command[1:], worker.Args...))
}

// checkFlags checks the flags behind a command of the program, and returns all flags of the command.
func checkFlags(t *testing.T, args []string) map[string]programs.Flag {
	t.Helper()
	flags, err := programs.Flags(t.Context(), "placement", args[0])
	require.NoError(t, err)
	for _, arg := range args[1:] {
		if arg == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		assert.Contains(t, flags, name)
	}
	return flags
}

// TestPodsAreAdmitted: pods must comply with the Pod Security Standard, and the controller's pods
// are also admitted where critical pods need a quota, as on GKE.
func TestPodsAreAdmitted(t *testing.T) {
	s := newStory(t)
	s.kubectl("apply", "--server-side", "-k", root) // twice changes nothing
	manifests.GrantQuotas(t, s.Client)
	for _, of := range []*corev1.Pod{manifests.PodOf(deployment(t)), s.podOfWorkers("worker-9"), manifests.PodOf(queueServer(t))} {
		require.NoError(t, s.Create(t.Context(), of.DeepCopy(), client.DryRunAll))
		of.Spec.SecurityContext.RunAsNonRoot = new(false)
		assert.True(t, apierrors.IsForbidden(s.Create(t.Context(), of, client.DryRunAll)), "only restricted pods are admitted")
	}
}

// TestMonitoringSelectsTheController: the PodMonitor finds the port of the metrics.
func TestMonitoringSelectsTheController(t *testing.T) {
	d := deployment(t)
	kinds := map[string]int{}
	for _, obj := range manifests.Render(t, monitoring) {
		kinds[obj.GetKind()]++
		assert.Equal(t, system, obj.GetNamespace(), obj.GetKind())
		if obj.GetKind() != "PodMonitor" {
			continue
		}
		labels, _, err := unstructured.NestedStringMap(obj.Object, "spec", "selector", "matchLabels")
		require.NoError(t, err)
		assert.Subset(t, d.Spec.Template.Labels, labels)
		endpoints, _, err := unstructured.NestedSlice(obj.Object, "spec", "podMetricsEndpoints")
		require.NoError(t, err)
		require.Len(t, endpoints, 1)
		assert.Equal(t, d.Spec.Template.Spec.Containers[0].Ports[0].Name, endpoints[0].(map[string]any)["port"])
	}
	assert.Equal(t, map[string]int{"PodMonitor": 1, "PrometheusRule": 1, "ConfigMap": 1}, kinds)
}
