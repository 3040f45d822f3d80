package place_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
)

// Objects are taken from live shards only while the fence of the present spec is known to work.
func TestForceNeedsAFence(t *testing.T) {
	ring := func() *v1alpha1.ClusterRing {
		r := &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		r.Spec.Fence, r.Spec.Handover.OnTimeout = v1alpha1.FenceDeny, v1alpha1.Force
		r.Status.Conditions = []metav1.Condition{{Type: "FenceInstalled", Status: metav1.ConditionTrue, Reason: "Installed", ObservedGeneration: 2}}
		return r
	}
	secrets := v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}}
	assert.True(t, place.MayForce(ring(), secrets))
	for _, r := range []v1alpha1.GroupResource{
		{Group: "coordination.k8s.io", Resource: "leases"},
		{Resource: "events"},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"},
	} {
		assert.False(t, place.MayForce(ring(), v1alpha1.Resource{GroupResource: r}), "no fence applies to %s", r.Resource)
	}
	parents := secrets
	parents.ControlledResources = []v1alpha1.GroupResource{{Resource: "pods"}}
	assert.True(t, place.MayForce(ring(), parents))
	parents.ControlledResources = append(parents.ControlledResources, v1alpha1.GroupResource{Resource: "events"})
	assert.False(t, place.MayForce(ring(), parents), "no fence applies to children")
	for name, change := range map[string]func(*v1alpha1.ClusterRing){
		"the ring waits":                    func(r *v1alpha1.ClusterRing) { r.Spec.Handover.OnTimeout = v1alpha1.Wait },
		"the fence only records":            func(r *v1alpha1.ClusterRing) { r.Spec.Fence = v1alpha1.FenceAudit },
		"there is no report":                func(r *v1alpha1.ClusterRing) { r.Status.Conditions = nil },
		"the fence is that of another spec": func(r *v1alpha1.ClusterRing) { r.Generation = 3 },
		"it is not installed":               func(r *v1alpha1.ClusterRing) { r.Status.Conditions[0].Status = metav1.ConditionFalse },
		"it was disabled":                   func(r *v1alpha1.ClusterRing) { r.Status.Conditions[0].Reason = "Disabled" },
	} {
		r := ring()
		change(r)
		assert.False(t, place.MayForce(r, secrets), name)
	}
}
