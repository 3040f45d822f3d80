package service

import (
	"maps"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// ViewNodes returns a transform of a cache: it turns Nodes, or their metadata, into what nodekeeper
// sees of them. A second call for the same object does nothing: client-go v0.37 transforms the
// objects of a streamed list twice (Reflector.watchList and RealFIFO.Replace in tools/cache).
func ViewNodes(view nodeview.View) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		switch n := obj.(type) {
		case *metav1.PartialObjectMetadata:
			return view.OfMetadata(n).Compact(), nil
		case *corev1.Node:
			return view.OfWhole(n, time.Now()).Compact(), nil
		}
		return obj, nil
	}
}

// compacted returns cache options whose transforms store each key of labels, annotations and data,
// and each list of such keys, only once for all objects, and drop managedFields.
func compacted(o cache.Options) cache.Options {
	o.ByObject = maps.Clone(o.ByObject)
	for obj, by := range o.ByObject {
		if by.Transform == nil {
			by.Transform = o.DefaultTransform
		}
		by.Transform = compacting(by.Transform)
		o.ByObject[obj] = by
	}
	o.DefaultTransform = compacting(o.DefaultTransform)
	return o
}

// withSharedLists changes annotations so that lists of label keys and of owners share memory with all
// other objects, because most nodes have the same. It returns the annotations.
func withSharedLists(annotations map[string]string) map[string]string {
	for key, value := range annotations {
		if strings.HasSuffix(key, "-labels") || strings.HasSuffix(key, "/label-owners") {
			annotations[key] = unique.Make(value).Value()
		}
	}
	return annotations
}

func compacting(first toolscache.TransformFunc) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		if first != nil {
			var err error
			if obj, err = first(obj); err != nil {
				return obj, err
			}
		}
		m, ok := obj.(metav1.Object)
		if !ok {
			return obj, nil // a Node, see [ViewNodes], or a tombstone
		}
		m.SetManagedFields(nil)
		m.SetNamespace(unique.Make(m.GetNamespace()).Value())
		m.SetLabels(labels.WithSharedKeys(m.GetLabels()))
		m.SetAnnotations(withSharedLists(labels.WithSharedKeys(m.GetAnnotations())))
		if cm, ok := obj.(*corev1.ConfigMap); ok {
			cm.Data = labels.WithSharedKeys(cm.Data)
		}
		return obj, nil
	}
}
