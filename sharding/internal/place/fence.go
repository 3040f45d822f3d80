package place

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// FenceInstalled is the type of the condition that is true if a ring has the fence that it asks
// for, and FenceWorks is its reason if that is not None. FenceUnsupported is its reason if the API
// server cannot have fences.
const (
	FenceInstalled   = "FenceInstalled"
	FenceWorks       = "Installed"
	FenceUnsupported = "FenceUnsupported"
)

// IsFenced reports whether a status shows, for the current generation of the ring, that the API
// server refuses requests of its shards for the objects of other shards.
func IsFenced(ring *v1alpha1.ClusterRing, s *v1alpha1.ClusterRingStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, FenceInstalled)
	return ring.Spec.Fence == v1alpha1.FenceDeny && c != nil && c.Status == metav1.ConditionTrue && c.Reason == FenceWorks &&
		c.ObservedGeneration == ring.Generation
}

// MayForce reports whether objects of a main resource may be taken from live shards that do not
// release them: the ring asks for that, and its fence stops the writes of these shards to the
// objects and their children.
func MayForce(ring *v1alpha1.ClusterRing, main v1alpha1.Resource) bool {
	return ring.Spec.Handover.OnTimeout == v1alpha1.Force && IsFenced(ring, &ring.Status) && isCovered(main)
}

// WhyForceWaits returns why an object of a main resource is not taken from its shard although the
// ring has onTimeout Force.
func WhyForceWaits(main v1alpha1.Resource) string {
	if !isCovered(main) {
		return "no fence applies to its resource or to those of its children"
	}
	return "the fence does not work: see condition " + FenceInstalled
}

// isCovered reports whether fences apply to the objects of a main resource and to their children.
func isCovered(main v1alpha1.Resource) bool {
	return CanFence(main.GroupResource) && !slices.ContainsFunc(main.ControlledResources, func(r v1alpha1.GroupResource) bool { return !CanFence(r) })
}

// exempt are the resources to which no fence applies, even if they are resources of a ring: those
// that shards and the sharder themselves need in order to work, and those that the API server
// exempts from all admission policies.
var exempt = []v1alpha1.GroupResource{
	{Group: "coordination.k8s.io", Resource: "leases"},
	{Group: v1alpha1.GroupName, Resource: "clusterrings"},
	{Resource: "events"},
	{Group: "events.k8s.io", Resource: "events"},
	{Group: admissionGroup, Resource: "validatingadmissionpolicies"},
	{Group: admissionGroup, Resource: "validatingadmissionpolicybindings"},
	{Group: admissionGroup, Resource: "mutatingadmissionpolicies"},
	{Group: admissionGroup, Resource: "mutatingadmissionpolicybindings"},
}

const admissionGroup = "admissionregistration.k8s.io"

// CanFence reports whether fences apply to a resource.
func CanFence(r v1alpha1.GroupResource) bool { return !slices.Contains(exempt, r) }
