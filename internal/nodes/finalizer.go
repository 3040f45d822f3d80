package nodes

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizer is on every protected Node. The API server keeps a deleted Node until a processor has
// stored its last labels and removed the finalizer.
const Finalizer = "nodekeeper.dev/save-labels"

// WaitsForFinalizer reports whether [Finalizer] is the only finalizer of a Node that is being
// deleted. While there are others, its labels may still change after they are stored.
func WaitsForFinalizer(n *metav1.PartialObjectMetadata) bool {
	return n.DeletionTimestamp != nil && slices.Equal(n.Finalizers, []string{Finalizer})
}
