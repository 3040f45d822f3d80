// Package queues installs the example kind Queue in an API server, for tests and the demo.
package queues

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/test/repository"
)

// Kind is the example kind.
var Kind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Queue"}

// dir is the directory of the example.
const dir = "placement/examples/queue"

// Install installs the CRD and returns when the API server serves it.
func Install(ctx context.Context, cfg *rest.Config) error {
	crd, err := Load("crd.yaml")
	if err != nil {
		return err
	}
	return Serve(ctx, cfg, crd, Kind)
}

// Serve installs a CRD and returns when the API server serves its kind.
func Serve(ctx context.Context, cfg *rest.Config, crd *unstructured.Unstructured, kind schema.GroupVersionKind) error {
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	if err := c.Create(ctx, crd); err != nil {
		return fmt.Errorf("creating the CRD: %w", err)
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		fresh, err := client.New(cfg, client.Options{}) // with the kinds that are served by now
		return err == nil && fresh.List(ctx, list) == nil, nil
	})
}

// Load returns the object in a file of the example.
func Load(name string) (*unstructured.Unstructured, error) {
	root, err := repository.Root()
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(dir), name))
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, object); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return object, nil
}

// New returns a Queue that is not created yet.
func New(namespace, name string, partitions int64) *unstructured.Unstructured {
	q := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"partitions": partitions, "topic": name}}}
	q.SetGroupVersionKind(Kind)
	q.SetNamespace(namespace)
	q.SetName(name)
	return q
}

// WritePools writes a file for --pool-config with one pool of Queues, and returns its path. Other
// kinds of the pool are a list as in the file, or empty.
func WritePools(dir, namespace, pool, others string) (string, error) {
	const pools = `pools:
- name: %s
  namespace: %s
  kinds: [{apiVersion: example.com/v1, kind: Queue, replicasPath: spec.partitions, payloadPath: spec, statusPath: status}, %s]
`
	path := filepath.Join(dir, "pools.yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, pools, pool, namespace, others), 0o600)
}
