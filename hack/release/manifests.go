package main

import (
	"fmt"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/types"

	"nodekeeper.dev/hack/manifests"
	"nodekeeper.dev/hack/oci"
)

// installation is a way to install a product: a manifest file, and chart values with the same
// effect.
type installation struct{ file, dir, values string }

// product is a part of the release that can be installed alone.
type product struct {
	// deploy is the directory of its manifests.
	deploy           string
	chart, namespace string
	installations    []installation
}

var products = []product{
	{"deploy", "nodekeeper", "nodekeeper-system", []installation{
		{"install.yaml", "base", ""},
		{"install-ha.yaml", "overlays/ha", "values-ha.yaml"},
		{"install-minikube.yaml", "overlays/minikube", "values-minikube.yaml"},
	}},
	{"sharding/deploy", "sharder", "sharder-system", []installation{
		{"sharder.yaml", "base", ""},
		{"sharder-ha.yaml", "overlays/ha", "values-ha.yaml"},
	}},
	{"placement/deploy", "placement", "placement-system", []installation{
		{"placement.yaml", "base", ""},
	}},
}

// extras are manifests that users may apply after an installation.
var extras = []struct{ file, deploy, path, what string }{
	{"users.yaml", "deploy", "users", "the roles of the kubectl plugin"},
	{"ui.yaml", "deploy", "ui", "the live page in a cluster"},
	{"monitoring.yaml", "deploy", "monitoring", "alerts, a dashboard and a PodMonitor; needs the Prometheus operator"},
	{"gate-policy.yaml", "deploy", "gate/policy.yaml", "the startup taint from the API server; needs Kubernetes 1.36"},
	{"protection-policy.yaml", "deploy", "protection/policy.yaml", "the finalizer from the API server; needs Kubernetes 1.36 and processors with --protect=finalizer"},
	{"sharder-monitoring.yaml", "sharding/deploy", "monitoring", "alerts, a dashboard and a PodMonitor of the sharder; needs the Prometheus operator"},
	{"placement-monitoring.yaml", "placement/deploy", "monitoring", "alerts, a dashboard and a PodMonitor of placement; needs the Prometheus operator"},
	{"placement-lease-owner.yaml", "placement/deploy", "components/lease-owner", "pods of a pool write no Lease but their own; needs Kubernetes 1.30"},
	{"sharder-crds.yaml", "sharding/deploy", "crd", "the CRD of the sharder; the label keeper needs none"},
}

// manifests writes the files for kubectl apply -f, with images by digest.
func (r *release) manifests() error {
	trees := map[string]*manifests.Tree{}
	for _, p := range products {
		var err error
		if trees[p.deploy], err = manifests.Load(filepath.Join(r.root, p.deploy)); err != nil {
			return err
		}
		for _, i := range p.installations {
			if err := r.manifest(trees[p.deploy], i.file, p.deploy+"/"+i.dir, r.withImages(manifests.Kustomization(i.dir))); err != nil {
				return err
			}
		}
	}
	for _, e := range extras {
		if err := r.manifest(trees[e.deploy], e.file, e.what, r.withImages(manifests.Kustomization(e.path))); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) manifest(tree *manifests.Tree, file, what string, k *types.Kustomization) error {
	text, err := tree.YAML(k)
	if err != nil {
		return err
	}
	return r.write(file, fmt.Appendf(nil, "# nodekeeper %s: %s.\n# kubectl apply --server-side -f %s\n%s", r.version, what, file, text))
}

// withImages adds the images of this release to a kustomization. The tag is only informational; the
// digest selects the image.
func (r *release) withImages(k *types.Kustomization) *types.Kustomization {
	for _, service := range services {
		name := oci.Name(service)
		k.Images = append(k.Images, types.Image{Name: name, NewName: r.registry + "/" + name, NewTag: r.version, Digest: r.digests[service]})
	}
	return k
}
