package place

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// FenceInstalled is the type of the condition that is true if a ring has the fence that it asks for,
// and FenceWorks is its reason if that is not None.
const (
	FenceInstalled = "FenceInstalled"
	FenceWorks     = "Installed"
)

// IsFenced reports whether a status shows, for the current generation of the ring, that the API server
// refuses requests of its shards for the objects of other shards.
func IsFenced(ring *v1alpha1.ClusterRing, s *v1alpha1.ClusterRingStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, FenceInstalled)
	return ring.Spec.Fence == v1alpha1.FenceDeny && c != nil && c.Status == metav1.ConditionTrue && c.Reason == FenceWorks &&
		c.ObservedGeneration == ring.Generation
}

// MayForce reports whether objects may be taken from live shards that do not release them: the ring
// asks for that, and its fence stops these shards.
func MayForce(ring *v1alpha1.ClusterRing) bool {
	return ring.Spec.Handover.OnTimeout == v1alpha1.Force && IsFenced(ring, &ring.Status)
}
