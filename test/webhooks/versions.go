package webhooks

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Versions records every version of a Node that a watch delivers from now on. The returned function
// ends the watch and returns the versions in order, without deletes.
func Versions(ctx context.Context, c client.WithWatch, node string) (end func() []*corev1.Node, err error) {
	w, err := c.Watch(ctx, &corev1.NodeList{}, client.MatchingFields{metav1.ObjectNameField: node})
	if err != nil {
		return nil, fmt.Errorf("watching node %s: %w", node, err)
	}
	seen := make(chan []*corev1.Node, 1)
	go func() {
		var all []*corev1.Node
		for event := range w.ResultChan() {
			if n, isNode := event.Object.(*corev1.Node); isNode && event.Type != watch.Deleted {
				all = append(all, n)
			}
		}
		seen <- all
	}()
	return func() []*corev1.Node {
		w.Stop()
		return <-seen
	}, nil
}
