package nodes

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizer is on every protected Node: the API server keeps a Node that is being deleted until it is
// removed, which a processor does when the last labels are stored.
const Finalizer = "nodekeeper.dev/save-labels"

// WaitsForFinalizer reports whether [Finalizer] is all that keeps a Node that is being deleted. As
// long as there are other finalizers, its labels may change after they are stored.
func WaitsForFinalizer(n *metav1.PartialObjectMetadata) bool {
	return n.DeletionTimestamp != nil && slices.Equal(n.Finalizers, []string{Finalizer})
}
