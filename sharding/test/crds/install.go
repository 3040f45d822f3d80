// Package crds installs the ClusterRing CRD in an API server for tests.
package crds

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/repository"
)

// errScheme is nil. The types are registered before any test begins, because changing a scheme is
// not safe while clients use it.
var errScheme = v1alpha1.AddToScheme(scheme.Scheme)

// Install installs the ClusterRing CRD and returns when the API server serves it.
func Install(ctx context.Context, cfg *rest.Config) error {
	if errScheme != nil {
		return errScheme
	}
	root, err := repository.Root()
	if err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(root, "sharding", "deploy", "crd", "*_*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(errors.New("there is no CRD"), err)
	}
	for _, file := range files {
		if err := create(ctx, c, file); err != nil {
			return fmt.Errorf("creating %s: %w", file, err)
		}
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		fresh, err := client.New(cfg, client.Options{}) // with the kinds that are served by now
		return err == nil && fresh.List(ctx, &v1alpha1.ClusterRingList{}) == nil, nil
	})
}

func create(ctx context.Context, c client.Client, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, object); err != nil {
		return err
	}
	return c.Create(ctx, object)
}
