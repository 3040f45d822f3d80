package service

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nodekeeper.dev/internal/nodeview"
)

// wholeNodes makes the informer of the metadata of Nodes read whole Nodes if the view needs their
// spec. The cache holds only metadata reduced to the view, but every event carries the status of
// the Node.
func wholeNodes(cfg *rest.Config, o cache.Options, view nodeview.View) (cache.Options, error) {
	if !view.Preserved.NeedsSpec() {
		return o, nil
	}
	client, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return o, fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	next := o.NewInformer
	if next == nil {
		next = toolscache.NewSharedIndexInformer
	}
	o.NewInformer = func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, isMetadata := obj.(*metav1.PartialObjectMetadata); isMetadata { // of Nodes: nothing else is cached as metadata
			lw = wholeLister(client.Nodes(), view)
		}
		return next(lw, obj, resync, indexers)
	}
	return o, nil
}

// wholeLister lists and watches whole Nodes, and returns their metadata reduced to the view.
func wholeLister(client corev1client.NodeInterface, view nodeview.View) toolscache.ListerWatcher {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			whole, err := client.List(ctx, options)
			if err != nil {
				return nil, err //nolint:wrapcheck // the informer adds the context, and checks the status
			}
			list := &metav1.PartialObjectMetadataList{ListMeta: whole.ListMeta, Items: make([]metav1.PartialObjectMetadata, len(whole.Items))}
			for i := range whole.Items {
				n, err := view.Whole(&whole.Items[i])
				if err != nil {
					return nil, err //nolint:wrapcheck // it has the context already
				}
				list.Items[i] = *n
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, options)
			if err != nil {
				return nil, err //nolint:wrapcheck // as above
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				if whole, isNode := e.Object.(*corev1.Node); isNode {
					n, err := view.Whole(whole)
					if err != nil {
						return watch.Event{Type: watch.Error, Object: &metav1.Status{Message: err.Error()}}, true
					}
					e.Object = n
				}
				return e, true
			}), nil
		},
	}
}
