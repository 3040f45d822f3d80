package helm

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// added returns the labels that a chart adds to the objects of the manifests, with their expected
// values.
func added(r Release, version, appVersion string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/instance":   r.Name,
		"app.kubernetes.io/managed-by": "Helm",
		"app.kubernetes.io/version":    appVersion,
		"helm.sh/chart":                r.Chart + "-" + version,
	}
}

// The annotation that keeps an object when its release is uninstalled.
const (
	policyAnnotation = "helm.sh/resource-policy"
	keep             = "keep"
)

// Same reports, as errors, how the objects of a release of our chart differ from the kustomize
// output: object by object and field by field. The only allowed differences are the labels of Helm
// and the annotation that keeps the namespaces, and these are required.
func Same(r Release, version, appVersion string, rendered, want []*unstructured.Unstructured) error {
	has, err := byKey(rendered)
	if err != nil {
		return err
	}
	wanted, err := byKey(want)
	if err != nil {
		return err
	}
	var differ []error
	for _, key := range slices.Sorted(maps.Keys(has)) {
		if wanted[key] == nil {
			differ = append(differ, fmt.Errorf("only the chart has %s", key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if has[key] == nil {
			differ = append(differ, fmt.Errorf("the chart has no %s", key))
			continue
		}
		obj := has[key].DeepCopy()
		if err := take(obj, added(r, version, appVersion)); err != nil {
			differ = append(differ, fmt.Errorf("%s: %w", key, err))
		}
		differ = append(differ, fields(key, plain(obj), plain(wanted[key]))...)
	}
	return errors.Join(differ...)
}

func byKey(objects []*unstructured.Unstructured) (map[string]*unstructured.Unstructured, error) {
	all := map[string]*unstructured.Unstructured{}
	for _, obj := range objects {
		key := fmt.Sprintf("%s %s %s/%s", obj.GetAPIVersion(), obj.GetKind(), obj.GetNamespace(), obj.GetName())
		if all[key] != nil {
			return nil, fmt.Errorf("%s is there twice", key)
		}
		all[key] = obj
	}
	return all, nil
}

// take removes Helm's additions from an object, which must all exist.
func take(obj *unstructured.Unstructured, labels map[string]string) error {
	has := obj.GetLabels()
	for key, value := range labels {
		if has[key] != value {
			return fmt.Errorf("its label %s is %q, and not %q", key, has[key], value)
		}
		delete(has, key)
	}
	obj.SetLabels(has)
	if obj.GetKind() != "Namespace" {
		return nil
	}
	annotations := obj.GetAnnotations()
	if annotations[policyAnnotation] != keep {
		return fmt.Errorf("its annotation %s is %q: an uninstallation would delete it", policyAnnotation, annotations[policyAnnotation])
	}
	delete(annotations, policyAnnotation)
	obj.SetAnnotations(annotations)
	return nil
}

// plain returns the fields of an object without empty labels and annotations.
func plain(obj *unstructured.Unstructured) map[string]any {
	obj = obj.DeepCopy()
	if len(obj.GetLabels()) == 0 {
		unstructured.RemoveNestedField(obj.Object, "metadata", "labels")
	}
	if len(obj.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(obj.Object, "metadata", "annotations")
	}
	return obj.Object
}

// fields returns an error for each field that differs.
func fields(path string, has, want any) []error {
	hasMap, isMap := has.(map[string]any)
	wantMap, bothMaps := want.(map[string]any)
	if isMap && bothMaps {
		var differ []error
		keys := map[string]bool{}
		for key := range hasMap {
			keys[key] = true
		}
		for key := range wantMap {
			keys[key] = true
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			differ = append(differ, fields(path+"."+key, hasMap[key], wantMap[key])...)
		}
		return differ
	}
	hasList, isList := has.([]any)
	wantList, bothLists := want.([]any)
	if isList && bothLists && len(hasList) == len(wantList) {
		var differ []error
		for i := range wantList {
			differ = append(differ, fields(fmt.Sprintf("%s[%d]", path, i), hasList[i], wantList[i])...)
		}
		return differ
	}
	if reflect.DeepEqual(has, want) {
		return nil
	}
	return []error{fmt.Errorf("%s is %v in the chart, and %v in the manifests", path, has, want)}
}
