package service

import (
	"crypto/rand"
	"maps"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// strippedAnnotation marks the metadata of a Node, in memory, that a cache has stripped.
const strippedAnnotation = "nodekeeper.dev/stripped"

// StripNode returns a transform of a cache: it removes unneeded fields from the metadata of a Node,
// and stamps it with the ownership of its labels. Ownership is derived from the removed fields, so
// a second call for the same object does nothing: client-go v0.37 transforms the objects of a
// streamed list twice (Reflector.watchList and RealFIFO.Replace in tools/cache). If the view needs
// the spec of Nodes, it was applied when they were read, see wholeNodes.
func StripNode(view nodeview.View) toolscache.TransformFunc {
	mark := rand.Text() // anyone who may patch a Node can set the annotation, but cannot know this value
	return func(obj any) (any, error) {
		n, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok || n.Annotations[strippedAnnotation] == mark {
			return obj, nil
		}
		if !view.Preserved.NeedsSpec() {
			view.Apply(n)
		}
		nodeview.StripAnnotations(n)
		nodeview.NoteGatedSince(n)
		n.ManagedFields, n.OwnerReferences = nil, nil
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, strippedAnnotation, mark)
		return n, nil
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
		m, err := meta.Accessor(obj)
		if err != nil {
			return obj, nil //nolint:nilerr // a tombstone, for example: there is nothing to compact
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
