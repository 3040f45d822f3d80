package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

// root is the directory of the manifests.
var root = filepath.Join("..", "..", "deploy")

// The directories that can be applied.
const (
	base     = "base"
	minikube = "overlays/minikube"
	ha       = "overlays/ha"
)

// systemNamespace is the namespace of the programs.
const systemNamespace = "nodekeeper-system"

// object is an object in the manifests.
type object = *unstructured.Unstructured

// rendered caches the output of kubectl for the directories and variants. Nearly every test needs
// it, and it does not change.
var rendered sync.Map

// renderOnce returns copies of the objects with that key.
func renderOnce(t *testing.T, key string, manifests func() []byte) []object {
	t.Helper()
	known, isKnown := rendered.Load(key)
	if !isKnown {
		known, _ = rendered.LoadOrStore(key, manifests())
	}
	content, isBytes := known.([]byte)
	require.True(t, isBytes)
	return decode(t, content)
}

// render returns the objects of a directory under deploy that kubectl apply -k would send.
func render(t *testing.T, dir string) []object {
	t.Helper()
	return renderOnce(t, dir, func() []byte { return kustomize(t, filepath.Join(root, dir)) })
}

// renderAt is like render, for any directory.
func renderAt(t *testing.T, dir string) []object {
	t.Helper()
	return decode(t, kustomize(t, dir))
}

// kustomize returns the output of kubectl kustomize for a directory.
func kustomize(t *testing.T, dir string) []byte {
	t.Helper()
	controlplane.NeedKubectl(t)
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "kubectl", "kustomize", dir)
	cmd.Stderr = &stderr
	manifests, err := cmd.Output()
	require.NoError(t, err, "kubectl kustomize %s: %s", dir, &stderr)
	require.Empty(t, stderr.String(), "what kubectl kustomize %s warns of", dir)
	return manifests
}

// parse returns the objects of a file that kubectl apply -f would send.
func parse(t *testing.T, path string) []object {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return decode(t, content)
}

func decode(t *testing.T, manifests []byte) []object {
	t.Helper()
	var objects []object
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		objects = append(objects, obj)
	}
	require.NotEmpty(t, objects)
	return objects
}

// all returns the objects of a kind, converted to its type.
func all[T any](t *testing.T, objects []object, kind string) []T {
	t.Helper()
	var found []T
	for _, obj := range objects {
		if obj.GetKind() != kind {
			continue
		}
		var typed T
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, &typed, true))
		found = append(found, typed)
	}
	require.NotEmpty(t, found, "there is no %s", kind)
	return found
}

// install applies the namespaces, service accounts, roles, bindings, quotas and admission policies
// of the base, and waits until the policies are in force.
func install(t *testing.T, c *cluster) {
	t.Helper()
	installObjects(t, c, render(t, base))
}

// installObjects applies these kinds of objects from some manifests.
func installObjects(t *testing.T, c *cluster, objects []object) {
	t.Helper()
	for _, obj := range objects {
		switch obj.GetKind() {
		case "Namespace", "ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ResourceQuota", policyKind, bindingKind:
			require.NoError(t, apply(t, c, obj), "applying %s %s", obj.GetKind(), obj.GetName())
		}
		if obj.GetKind() == "Secret" { // cert-manager creates a Secret of another type, as the next test in this cluster may do
			t.Cleanup(func() {
				assert.NoError(t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), obj.DeepCopy())))
			})
		}
	}
	inForce(t, c)
}

// apply is like kubectl apply --server-side.
func apply(t *testing.T, c client.Client, obj object, opts ...client.ApplyOption) error {
	t.Helper()
	opts = append(opts, client.ForceOwnership, client.FieldOwner("test"))
	return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(obj.DeepCopy()), opts...)
}
