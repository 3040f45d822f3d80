package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodekeeper.dev/hack/manifests"
)

// feature is a chart setting that enables part of deploy.
type feature struct {
	path      string // of a component, a directory of resources, or a single file
	condition string // the condition in the templates
	needs     string // the path of the feature that must also be enabled
}

// features are in the order in which kustomize applies their components.
var features = []feature{
	{path: "components/admission", condition: ".Values.admission.enabled"},
	{path: "components/gate", condition: ".Values.admission.gate", needs: "components/admission"},
	{path: "components/cert-manager", condition: ".Values.admission.certManager", needs: "components/admission"},
	{path: "components/retention", condition: ".Values.retention.enabled"},
	{path: "components/protection", condition: ".Values.protection.enabled"},
	{path: "components/preserve-taints", condition: ".Values.preserve.taints"},
	{path: "components/preserve-annotations", condition: ".Values.preserve.annotations"},
	{path: "components/no-admission-policies", condition: "not .Values.admissionPolicies"},
	{path: "components/control-plane", condition: ".Values.controlPlaneOnly"},
	{path: "gate/policy.yaml", condition: ".Values.gatePolicy"},
	{path: "protection/policy.yaml", condition: ".Values.protection.policy"},
	{path: "users", condition: ".Values.users.enabled"},
	{path: "monitoring", condition: ".Values.monitoring.enabled"},
}

// set is a bit set of enabled features.
type set uint

func (s set) has(i int) bool  { return s&(1<<i) != 0 }
func (s set) with(i int) set  { return s | 1<<i }
func (s set) paths() []string { return append([]string{"base"}, pathsOf(s)...) }

func pathsOf(s set) []string {
	var paths []string
	for i, f := range features {
		if s.has(i) {
			paths = append(paths, f.path)
		}
	}
	return paths
}

// closed returns the set, extended by the features that its features need.
func (s set) closed() set {
	for i, f := range features {
		if s.has(i) && f.needs != "" {
			s = s.with(slices.IndexFunc(features, func(g feature) bool { return g.path == f.needs }))
		}
	}
	return s
}

// pairs returns the sets of up to two features, extended by the features that they need.
func pairs() []set {
	sets := []set{0}
	for i := range features {
		for j := range i + 1 {
			sets = append(sets, set(0).with(i).with(j).closed())
		}
	}
	slices.Sort(sets)
	return slices.Compact(sets)
}

// rendered is the kustomize output for a set of features.
type rendered struct {
	texts   map[string][]string // the lines of each object, with markers
	sources map[string]string   // the file under deploy that defines each object
	order   []string            // the objects in the order of kustomize
}

func render(tree *manifests.Tree, s set, m *markers) (*rendered, error) {
	k := manifests.Kustomization(s.paths()...)
	k.BuildMetadata = []string{"originAnnotations"}
	objects, err := tree.Render(k)
	if err != nil {
		return nil, err
	}
	r := &rendered{texts: map[string][]string{}, sources: map[string]string{}}
	for _, obj := range objects {
		key := fmt.Sprintf("%s/%s/%s", obj.GetKind(), obj.GetNamespace(), obj.GetName())
		if r.sources[key], err = takeSource(obj); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if err := m.mark(obj); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		var text strings.Builder
		encoder := yaml.NewEncoder(&text)
		encoder.SetIndent(2)
		if err := encoder.Encode(obj.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		r.texts[key] = strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
		r.order = append(r.order, key)
	}
	return r, nil
}

// origin is the annotation in which kustomize records an object's source.
const origin = "config.kubernetes.io/origin"

// takeSource returns the source file of an object and removes the annotation.
func takeSource(obj manifests.Object) (string, error) {
	annotations := obj.GetAnnotations()
	var from struct{ Path, ConfiguredIn string }
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(annotations[origin], "configuredIn", "configuredin")), &from); err != nil {
		return "", err
	}
	delete(annotations, origin)
	obj.SetAnnotations(annotations)
	if len(annotations) == 0 {
		obj.SetAnnotations(nil)
	}
	source := from.Path
	if source == "" {
		source = from.ConfiguredIn
	}
	if source == "" {
		return "", errors.New("kustomize does not say where it is from")
	}
	return strings.TrimPrefix(path.Clean(source), "../../"), nil
}
