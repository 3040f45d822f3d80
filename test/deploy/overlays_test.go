package deploy_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/programs"
)

func TestOverlaysRenderWhatTheyPromise(t *testing.T) {
	common := []string{"--transaction-namespace=node-metadata-transactions", "--metadata-namespace=node-metadata", "--membership-namespace=nodekeeper-system", "--wait-for-cluster"}
	flags := map[string]map[string]string{
		withRetention: {"processor": "--retention=720h"}, withProtection: {"processor": "--protect=finalizer"},
		withGate: {"webhook": "--gate"}, withCertManager: {"webhook": "--rotate-certificate=false"},
	}
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			objects := v.render(t)
			replicas := map[string]int32{base: 2, minikube: 1, ha: 3}[v.dir]
			args := map[string][]string{}
			for _, d := range all[appsv1.Deployment](t, objects, "Deployment") {
				assert.Equal(t, new(replicas), d.Spec.Replicas, "replicas of %s", d.Name)
				args[d.Name] = d.Spec.Template.Spec.Containers[0].Args
			}
			want := map[string][]string{"watcher": common, "processor": common}
			if slices.Contains(v.all(), withAdmission) {
				want["webhook"] = common
			}
			for _, component := range v.all() {
				for program, flag := range flags[component] {
					want[program] = append(slices.Clone(want[program]), flag)
				}
			}
			assert.Equal(t, want, args)
			for _, budget := range all[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget") {
				assert.Nil(t, budget.Spec.MinAvailable, "with it a single replica would stop a drain")
				assert.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
			}
		})
	}
}

// The programs know the flags in args, and the ports of the probes and the metrics are their
// defaults.
func TestProgramsKnowTheirManifests(t *testing.T) {
	for _, v := range variants {
		for _, d := range all[appsv1.Deployment](t, v.render(t), "Deployment") {
			t.Run(v.String()+"/"+d.Name, func(t *testing.T) {
				container := d.Spec.Template.Spec.Containers[0]
				help := helpOf(t, &d)
				var ports []string
				for _, port := range container.Ports {
					assert.Contains(t, help, fmt.Sprintf(`(default ":%d")`, port.ContainerPort), "port %s", port.Name)
					ports = append(ports, port.Name)
				}
				want := []string{"metrics", "health"}
				if d.Name == "webhook" {
					want = append(want, "webhook")
				}
				assert.Equal(t, want, ports)
				assert.Equal(t, "health", container.LivenessProbe.HTTPGet.Port.StrVal)
				assert.Equal(t, "health", container.ReadinessProbe.HTTPGet.Port.StrVal)
			})
		}
	}
}

// helpOf returns the output of a program for the args of its manifest followed by --help. Flags are
// parsed in order, so an unknown one is an error before the help is printed.
func helpOf(t *testing.T, d *appsv1.Deployment) string {
	t.Helper()
	args := slices.Concat(d.Spec.Template.Spec.Containers[0].Args, []string{"--help"})
	p, err := programs.Start(d.Name, d.Name, "none", args...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Kill()) })
	select {
	case <-p.Done():
	case <-time.After(patience):
		require.Fail(t, "it goes on")
	}
	require.Zero(t, p.ExitCode(), "%s", p.Output())
	return p.Output()
}

// warnings collects the warnings of the API server, about deprecated or unknown fields, and about
// pods that would not be admitted.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

func TestAPIServerTakesEveryObject(t *testing.T) {
	t.Parallel()
	var said warnings
	c := newCluster(t, &said)
	install(t, c)
	for _, v := range variants {
		for _, obj := range v.render(t) {
			if obj.GroupVersionKind().Group == "cert-manager.io" {
				continue // this API server does not serve its kinds
			}
			assert.NoError(t, apply(t, c, obj, client.DryRunAll), "%s: %s %s", v, obj.GetKind(), obj.GetName())
		}
	}
	assert.Empty(t, said)
}

func TestAPIServerTakesThePoliciesThatReplaceTheWebhook(t *testing.T) {
	t.Parallel()
	var said warnings
	c := newCluster(t, &said)
	controlplane.NeedMutatingPolicies(t, c.plane.Kubeconfig)
	for _, path := range []string{filepath.Join(root, "protection", "policy.yaml"), gatePolicy} {
		for _, obj := range parse(t, path) {
			assert.NoError(t, apply(t, c, obj, client.DryRunAll), "%s: %s %s", path, obj.GetKind(), obj.GetName())
		}
	}
	assert.Empty(t, said)
}

// TestAllOverlaysAreTested finds overlays and components without tests.
func TestAllOverlaysAreTested(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob(filepath.Join(root, "overlays", "*"))
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{filepath.Join(root, minikube), filepath.Join(root, ha)}, found)
	found, err = filepath.Glob(filepath.Join(root, "components", "*"))
	require.NoError(t, err)
	var components []string
	for _, v := range variants {
		for _, component := range v.components {
			components = append(components, filepath.Join(root, component))
		}
	}
	slices.Sort(components)
	assert.ElementsMatch(t, slices.Compact(components), found)
}

// A selector that matches nothing has no effect, and is not an error.
func TestPodsAreSelected(t *testing.T) {
	t.Parallel()
	objects := variant{base, []string{withAdmission}}.render(t)
	for _, d := range all[appsv1.Deployment](t, objects, "Deployment") {
		manifests.CheckSelectors(t, objects, &d)
	}
}

// TestPodsAreHardened checks settings that the restricted Pod Security Standard does not require.
func TestPodsAreHardened(t *testing.T) {
	for _, d := range all[appsv1.Deployment](t, variant{base, []string{withAdmission}}.render(t), "Deployment") {
		t.Run(d.Name, func(t *testing.T) {
			manifests.CheckHardening(t, &d)
		})
	}
}

// The pods must comply with the Pod Security Standard, and are also admitted where critical pods
// need a quota, as on GKE.
func TestPodsAreAdmitted(t *testing.T) {
	t.Parallel()
	var said warnings
	c := newCluster(t, &said)
	installObjects(t, c, variant{base, []string{withAdmission}}.render(t))
	manifests.GrantQuotas(t, c)
	withoutQuota := controlplane.Namespace(t, c)
	for _, name := range []string{"watcher", "processor", "webhook"} {
		require.NoError(t, c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: withoutQuota, Name: name}}))
	}
	for _, v := range variants {
		for _, d := range all[appsv1.Deployment](t, v.render(t), "Deployment") {
			assert.NoError(t, c.Create(t.Context(), manifests.PodOf(&d)), "%s: the pod of %s", v, d.Name)
			assert.Empty(t, said)

			lax := manifests.PodOf(&d)
			lax.Spec.SecurityContext.RunAsNonRoot = new(false)
			assert.True(t, apierrors.IsForbidden(c.Create(t.Context(), lax)), "only restricted pods are admitted")
			said = nil

			elsewhere := manifests.PodOf(&d)
			elsewhere.Namespace = withoutQuota
			assert.ErrorContains(t, c.Create(t.Context(), elsewhere), "insufficient quota")
			said = nil
		}
	}
}
