package deploy_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/manifests"
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
type object = manifests.Object

// rendered caches the output of kubectl for the directories and variants. Nearly every test needs
// it, and it does not change.
var rendered sync.Map

// renderOnce returns copies of the objects with that key.
func renderOnce(t *testing.T, key string, content func() []byte) []object {
	t.Helper()
	known, isKnown := rendered.Load(key)
	if !isKnown {
		known, _ = rendered.LoadOrStore(key, content())
	}
	yaml, isBytes := known.([]byte)
	require.True(t, isBytes)
	return manifests.Decode(t, yaml)
}

// render returns the objects of a directory under deploy that kubectl apply -k would send.
func render(t *testing.T, dir string) []object {
	t.Helper()
	return renderOnce(t, dir, func() []byte { return manifests.Kustomize(t, filepath.Join(root, dir)) })
}

// renderAt is like render, for any directory.
func renderAt(t *testing.T, dir string) []object {
	t.Helper()
	return manifests.Render(t, dir)
}

// parse returns the objects of a file that kubectl apply -f would send.
func parse(t *testing.T, path string) []object {
	t.Helper()
	return manifests.Parse(t, path)
}

// all returns the objects of a kind, converted to its type.
func all[T any](t *testing.T, objects []object, kind string) []T {
	t.Helper()
	return manifests.All[T](t, objects, kind)
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
	return manifests.Apply(t.Context(), c, obj, opts...)
}
