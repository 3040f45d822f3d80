package deploy_test

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// uninstall contains the objects that users delete to remove nodekeeper.
const uninstall = "uninstall"

// doNotPrune are the annotations that make Argo CD and Flux keep an object that is removed from the
// manifests, and make Argo CD keep it when its application is deleted.
var doNotPrune = map[string]string{
	"argocd.argoproj.io/sync-options":   "Prune=false,Delete=false",
	"kustomize.toolkit.fluxcd.io/prune": "disabled",
}

// These are the namespaces in which the programs store labels, according to their flags. Everything
// else may be pruned: no stored labels are lost with the namespace of the programs.
func TestNothingPrunesTheNamespacesOfData(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		objects := v.render(t)
		data := map[string]bool{}
		for _, d := range all[appsv1.Deployment](t, objects, "Deployment") {
			for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
				for _, flag := range []string{"--transaction-namespace=", "--metadata-namespace="} {
					if name, found := strings.CutPrefix(arg, flag); found {
						data["Namespace "+name] = true
					}
				}
			}
		}
		require.Len(t, data, 2, v)
		kept := map[string]bool{}
		for _, obj := range objects {
			has := 0
			for key, value := range doNotPrune {
				if obj.GetAnnotations()[key] == value {
					has++
				}
			}
			if has == len(doNotPrune) {
				kept[obj.GetKind()+" "+obj.GetName()] = true
			}
		}
		assert.Equal(t, data, kept, v)
	}
}

// id identifies an object among the applied ones.
func id(obj object) string {
	return strings.Join([]string{obj.GroupVersionKind().Group, obj.GetKind(), obj.GetNamespace(), obj.GetName()}, "/")
}

// This includes everything that any overlay or component applies.
func TestUninstallHasEverythingButTheNamespacesOfData(t *testing.T) {
	t.Parallel()
	applied, deleted := map[string]bool{}, map[string]bool{}
	for _, v := range variants {
		for _, obj := range v.render(t) {
			// A cluster may not have the kinds of cert-manager. Its objects are in the namespace that is
			// deleted.
			if obj.GroupVersionKind().Group == "cert-manager.io" {
				require.Equal(t, systemNamespace, obj.GetNamespace())
				continue
			}
			applied[id(obj)] = true
		}
	}
	for _, obj := range render(t, uninstall) {
		deleted[id(obj)] = true
	}
	for _, namespace := range []string{transactions, metadata} {
		name := "/Namespace//" + namespace
		assert.Contains(t, applied, name)
		delete(applied, name)
	}
	assert.Equal(t, slices.Sorted(maps.Keys(applied)), slices.Sorted(maps.Keys(deleted)))
}

// TestUninstallKeepsTheRecords runs the command of docs/how-to/uninstall.md.
func TestUninstallKeepsTheRecords(t *testing.T) {
	t.Parallel()
	plane, err := planes.New() // exclusive, since nothing here finishes the deletion of a namespace
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	direct, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	c := &cluster{direct, plane}
	for _, obj := range render(t, ha) {
		require.NoError(t, apply(t, c, obj), id(obj))
	}
	record := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metadata, Name: "node-1"},
		Data:       map[string]string{"labels_restored": "407", "rack": "r7"},
	}
	waiting := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: transactions, Name: strings.Repeat("0", 64) + ".408"},
		Data:       map[string]string{"type": "updated", "rack": "r8"},
	}
	for _, cm := range []*corev1.ConfigMap{record, waiting} {
		require.NoError(t, c.Create(t.Context(), cm))
	}

	args := []string{"delete", "-k", filepath.Join(root, uninstall), "--ignore-not-found", "--wait=false", "--kubeconfig", plane.Kubeconfig}
	out, err := exec.CommandContext(t.Context(), "kubectl", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)

	for _, cm := range []*corev1.ConfigMap{record, waiting} {
		data := cm.Data
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
		assert.Equal(t, data, cm.Data)
		namespace := &corev1.Namespace{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: cm.Namespace}, namespace))
		assert.True(t, namespace.DeletionTimestamp.IsZero(), "namespace %s is kept", namespace.Name)
	}
	for _, obj := range render(t, ha) {
		if obj.GetKind() == "Namespace" {
			continue
		}
		left := &unstructured.Unstructured{}
		left.SetGroupVersionKind(obj.GroupVersionKind())
		err := client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), left))
		require.NoError(t, err)
		assert.Empty(t, left.GetName(), "%s is gone", id(obj))
	}
}
