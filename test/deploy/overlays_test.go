package deploy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/programs"
)

func TestOverlaysRenderWhatTheySay(t *testing.T) {
	common := []string{"--transaction-namespace=node-metadata-transactions", "--metadata-namespace=node-metadata", "--wait-for-cluster"}
	for dir, tc := range map[string]struct {
		replicas int32
		watcher  []string // what only the watchers get
	}{
		base:     {replicas: 2},
		minikube: {replicas: 1, watcher: []string{"--head-start=0"}},
		ha:       {replicas: 3},
	} {
		t.Run(dir, func(t *testing.T) {
			objects := render(t, dir)
			args := map[string][]string{}
			for _, d := range all[appsv1.Deployment](t, objects, "Deployment") {
				assert.Equal(t, new(tc.replicas), d.Spec.Replicas, "replicas of %s", d.Name)
				args[d.Name] = d.Spec.Template.Spec.Containers[0].Args
			}
			assert.Equal(t, map[string][]string{
				"watcher":   slices.Concat(common, tc.watcher),
				"processor": common,
			}, args)
			for _, budget := range all[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget") {
				assert.Nil(t, budget.Spec.MinAvailable, "with it a single replica would stop a drain")
				assert.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
			}
		})
	}
}

// TestProgramsKnowTheirManifests: the flags of the args, and the ports of the probes and the metrics, which are the programs' defaults.
func TestProgramsKnowTheirManifests(t *testing.T) {
	for _, dir := range []string{base, minikube, ha} {
		for _, d := range all[appsv1.Deployment](t, render(t, dir), "Deployment") {
			t.Run(dir+"/"+d.Name, func(t *testing.T) {
				container := d.Spec.Template.Spec.Containers[0]
				// Args are parsed in order: one that is not known is an error before the help is reached.
				p, err := programs.Start(d.Name, d.Name, "none", slices.Concat(container.Args, []string{"--help"})...)
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, p.Kill()) })
				select {
				case <-p.Done():
				case <-time.After(patience):
					require.Fail(t, "it goes on")
				}
				require.Zero(t, p.ExitCode(), "%s", p.Output())
				require.Len(t, container.Ports, 2)
				for _, port := range container.Ports {
					assert.Contains(t, p.Output(), fmt.Sprintf(`(default ":%d")`, port.ContainerPort), "port %s", port.Name)
				}
				assert.Equal(t, "health", container.LivenessProbe.HTTPGet.Port.StrVal)
				assert.Equal(t, "health", container.ReadinessProbe.HTTPGet.Port.StrVal)
			})
		}
	}
}

// warnings keeps what the API server warns of: fields that are deprecated or unknown, and pods that are not to be admitted.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

func TestAPIServerTakesEveryObject(t *testing.T) {
	var said warnings
	c := newClient(t, &said)
	install(t, c)
	for _, dir := range []string{base, minikube, ha} {
		for _, obj := range render(t, dir) {
			assert.NoError(t, apply(t, c, obj, client.DryRunAll), "%s: %s %s", dir, obj.GetKind(), obj.GetName())
		}
	}
	assert.Empty(t, said)
}

func TestPodsAreAdmitted(t *testing.T) {
	var said warnings
	c := newClient(t, &said)
	install(t, c)
	for _, dir := range []string{base, minikube, ha} {
		for _, d := range all[appsv1.Deployment](t, render(t, dir), "Deployment") {
			assert.NoError(t, c.Create(t.Context(), podOf(&d)), "%s: the pod of %s", dir, d.Name)
			assert.Empty(t, said)

			lax := podOf(&d)
			lax.Spec.SecurityContext.RunAsNonRoot = new(false)
			assert.True(t, apierrors.IsForbidden(c.Create(t.Context(), lax)), "only restricted pods are admitted")
			said = nil
		}
	}
}

// podOf returns a pod as the controllers make it from a Deployment.
func podOf(d *appsv1.Deployment) *corev1.Pod {
	meta := *d.Spec.Template.ObjectMeta.DeepCopy()
	meta.Namespace, meta.GenerateName = d.Namespace, d.Name+"-"
	return &corev1.Pod{ObjectMeta: meta, Spec: *d.Spec.Template.Spec.DeepCopy()}
}
