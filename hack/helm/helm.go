// Package helm renders charts with Helm's own library, like helm template.
package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Release is a release of a chart. Namespace is the namespace of the installation, and KubeVersion
// the version of the cluster; the default is v1.36.0.
type Release struct {
	Chart, Name, Namespace string
	KubeVersion            string
}

// Load returns the chart in a directory or an archive.
func Load(path string) (*chart.Chart, error) { return loader.Load(path) }

// Values returns the content of a values file.
func Values(path string) (_ map[string]any, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return loader.LoadValues(f)
}

// Render returns the objects of a release with these values, and its notes. It validates the values
// with the chart's schema.
func Render(ctx context.Context, c *chart.Chart, r Release, values map[string]any) (objects []*unstructured.Unstructured, notes string, err error) {
	version := r.KubeVersion
	if version == "" {
		version = "v1.36.0"
	}
	capabilities := *common.DefaultCapabilities
	kube, err := common.ParseKubeVersion(version)
	if err != nil {
		return nil, "", err
	}
	capabilities.KubeVersion = *kube
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}, &capabilities)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(ctx, c, all)
	if err != nil {
		return nil, "", err
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasSuffix(name, "/NOTES.txt") {
			notes = files[name]
			continue
		}
		found, err := Decode([]byte(files[name]))
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		objects = append(objects, found...)
	}
	return objects, notes, nil
}

// Decode returns the objects in manifests.
func Decode(manifests []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(obj); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(obj.Object) > 0 {
			objects = append(objects, obj)
		}
	}
}
