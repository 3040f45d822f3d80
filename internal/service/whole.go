package service

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nodekeeper.dev/internal/nodeview"
)

// wholeNodes makes the informer of the metadata of Nodes read whole Nodes if the view needs their
// spec. Every event then carries the status of the Node, too; the cache holds only what
// [ViewNodes] leaves of it.
func wholeNodes(cfg *rest.Config, o cache.Options, view nodeview.View) (cache.Options, error) {
	if !view.Preserved.NeedsSpec() {
		return o, nil
	}
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return o, fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	next := o.NewInformer
	if next == nil {
		next = toolscache.NewSharedIndexInformer
	}
	o.NewInformer = func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, isMetadata := obj.(*metav1.PartialObjectMetadata); isMetadata { // of Nodes: nothing else is cached as metadata
			lw, obj = listWatch(core.Nodes()), &corev1.Node{}
		}
		return next(lw, obj, resync, indexers)
	}
	return o, nil
}

// listWatch returns the requests of an informer of whole Nodes, as protobuf.
func listWatch(client corev1client.NodeInterface) toolscache.ListerWatcher {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options) //nolint:wrapcheck // the informer adds the context, and checks the status
		},
		WatchFuncWithContext: client.Watch,
	}
}
