// Package pages reads long lists page by page, so that neither side holds the whole list at once.
package pages

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Each calls do with every object in a namespace, or in all namespaces if it is "", that matches
// the selectors, and stops at the first error. newList returns an empty list of objects of type O.
// If the pages expire while they are read, the rest is read as one list, and do may see an object
// twice.
// are read, the rest comes with one list of all, and do may see an object twice.
func Each[O client.Object](
	ctx context.Context, from client.Reader, newList func() client.ObjectList, namespace string, do func(O) error, matching ...client.ListOption,
) error {
	pages := pager.New(func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
		list := newList()
		options := &client.ListOptions{Namespace: namespace, Limit: page.Limit, Continue: page.Continue, Raw: &page}
		err := from.List(ctx, list, options.ApplyOptions(matching))
		return list, err
	})
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		o, ok := obj.(O)
		if !ok {
			return fmt.Errorf("a list of %T holds a %T", *new(O), obj)
		}
		return do(o)
	})
}

// Metadata returns a function that returns empty metadata lists of a core kind, for [Each] of
// *metav1.PartialObjectMetadata.
func Metadata(kind string) func() client.ObjectList {
	return func() client.ObjectList {
		return &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind + "List"}}
	}
}
