package manifests

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

// Object is an object in a manifest.
type Object = *unstructured.Unstructured

// Kustomize returns the output of kubectl kustomize for a directory.
func Kustomize(t *testing.T, dir string) []byte {
	t.Helper()
	controlplane.NeedKubectl(t)
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "kubectl", "kustomize", dir)
	cmd.Stderr = &stderr
	rendered, err := cmd.Output()
	require.NoError(t, err, "kubectl kustomize %s: %s", dir, &stderr)
	require.Empty(t, stderr.String(), "what kubectl kustomize %s warns of", dir)
	return rendered
}

// Render returns the objects that kubectl apply -k would send.
func Render(t *testing.T, dir string) []Object {
	t.Helper()
	return Decode(t, Kustomize(t, dir))
}

// Parse returns the objects of a file that kubectl apply -f would send.
func Parse(t *testing.T, path string) []Object {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return Decode(t, content)
}

// Decode returns the objects in YAML, which must have at least one.
func Decode(t *testing.T, content []byte) []Object {
	t.Helper()
	var objects []Object
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
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

// All returns the objects of a kind, converted to its type. There must be at least one.
func All[T any](t *testing.T, objects []Object, kind string) []T {
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

// Apply is like kubectl apply --server-side.
func Apply(ctx context.Context, c client.Client, obj Object, opts ...client.ApplyOption) error {
	opts = append(opts, client.ForceOwnership, client.FieldOwner("test"))
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj.DeepCopy()), opts...)
}
