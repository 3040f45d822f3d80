// Package manifests renders the manifests under deploy like kubectl apply -k, with the version of
// kustomize that go.mod pins.
package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Tree is an in-memory copy of the directory deploy. It is not safe for concurrent use.
type Tree struct{ files filesys.FileSystem }

// Object is an object in a manifest.
type Object = *unstructured.Unstructured

// Load returns the manifests of a directory.
func Load(deploy string) (*Tree, error) {
	tree := &Tree{files: filesys.MakeFsInMemory()}
	source := os.DirFS(deploy)
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(source, name)
		if err != nil {
			return err
		}
		return tree.files.WriteFile(path.Join("/", name), content)
	})
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", deploy, err)
	}
	return tree, nil
}

// overlay is where Render writes its kustomization. It is at the same depth as those of
// deploy/overlays.
const overlay = "/overlays/rendered"

// Render returns the objects of a kustomization, as if it were in its own directory under
// deploy/overlays.
func (t *Tree) Render(k *types.Kustomization) ([]Object, error) {
	rendered, err := t.render(k)
	if err != nil {
		return nil, err
	}
	objects := make([]Object, 0, rendered.Size())
	for _, resource := range rendered.Resources() {
		content, err := resource.MarshalJSON()
		if err != nil {
			return nil, err
		}
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(content); err != nil {
			return nil, err
		}
		objects = append(objects, obj)
	}
	return objects, nil
}

// YAML returns the objects as kubectl kustomize prints them.
func (t *Tree) YAML(k *types.Kustomization) ([]byte, error) {
	rendered, err := t.render(k)
	if err != nil {
		return nil, err
	}
	return rendered.AsYaml()
}

func (t *Tree) render(k *types.Kustomization) (_ resmap.ResMap, err error) {
	content, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	if err := t.files.WriteFile(path.Join(overlay, "kustomization.yaml"), content); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.files.RemoveAll(overlay)) }()
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone // single files of deploy, such as gate/policy.yaml
	rendered, err := krusty.MakeKustomizer(options).Run(t.files, overlay)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", strings.Join(append(k.Resources, k.Components...), ", "), err)
	}
	return rendered, nil
}

// Kustomization returns a kustomization of directories and files of deploy, given by their paths
// there. Paths in components are added as components.
func Kustomization(paths ...string) *types.Kustomization {
	k := &types.Kustomization{TypeMeta: types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind}}
	for _, p := range paths {
		relative := path.Join("..", "..", p)
		if strings.HasPrefix(p, "components/") {
			k.Components = append(k.Components, relative)
		} else {
			k.Resources = append(k.Resources, relative)
		}
	}
	return k
}
