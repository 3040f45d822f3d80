package compat

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// Kind is the kind of ControllerRings. It must not be modified.
var Kind = schema.GroupVersionKind{Group: "sharding.timebertt.dev", Version: "v1alpha1", Kind: "ControllerRing"}

// newControllerRing returns an empty ControllerRing. It is unstructured because this package uses
// only the few fields below.
func newControllerRing() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(Kind)
	return u
}

// controllerRing contains the fields of a ControllerRing that this package uses.
type controllerRing struct {
	Spec struct {
		Resources []struct {
			v1alpha1.GroupResource `json:",inline"`

			ControlledResources []v1alpha1.GroupResource `json:"controlledResources,omitempty"`
		} `json:"resources,omitempty"`
		NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	} `json:"spec"`
	Status status `json:"status"`
}

// status is the status of a ControllerRing.
type status struct {
	ObservedGeneration int64              `json:"observedGeneration"`
	Conditions         []metav1.Condition `json:"conditions"`
	Shards             int32              `json:"shards"`
	AvailableShards    int32              `json:"availableShards"`
}

func parse(u *unstructured.Unstructured) (*controllerRing, error) {
	parsed := &controllerRing{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, parsed); err != nil {
		return nil, fmt.Errorf("reading ControllerRing %q: %w", u.GetName(), err)
	}
	return parsed, nil
}

// apply makes a ClusterRing the mirror of a ControllerRing. It keeps the settings that users can
// make on the mirror: the accounts of the shards, how objects move, and the key of each resource.
func apply(u *unstructured.Unstructured, of *controllerRing, mirror *v1alpha1.ClusterRing) {
	mirror.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(u, Kind)}
	spec := &mirror.Spec
	spec.Shards.Namespace = v1alpha1.AnyNamespace
	spec.Fence = v1alpha1.FenceNone
	spec.NamespaceSelector = of.Spec.NamespaceSelector
	before := spec.Resources
	spec.Resources = nil
	for _, r := range of.Spec.Resources {
		resource := v1alpha1.Resource{GroupResource: r.GroupResource, Key: v1alpha1.KeyName, ControlledResources: r.ControlledResources}
		for _, b := range before {
			if b.GroupResource == r.GroupResource {
				resource.Key, resource.KeyLabel = b.Key, b.KeyLabel
			}
		}
		spec.Resources = append(spec.Resources, resource)
	}
}

// observed returns the status of a ControllerRing, derived from the status of its mirror.
func observed(u *unstructured.Unstructured, before *status, mirror *v1alpha1.ClusterRing) status {
	after := *before
	after.Shards, after.AvailableShards = mirror.Status.Shards, mirror.Status.AvailableShards
	ready := meta.FindStatusCondition(mirror.Status.Conditions, conditionReady)
	if ready == nil || ready.ObservedGeneration != mirror.Generation {
		return after // the sharder has not observed the current spec yet
	}
	after.set(u, ready.Status, ready.Reason, ready.Message)
	return after
}

// set sets the Ready condition for the current generation of a ControllerRing.
func (s *status) set(u *unstructured.Unstructured, ready metav1.ConditionStatus, reason, message string) {
	s.ObservedGeneration = u.GetGeneration()
	s.Conditions = append([]metav1.Condition{}, s.Conditions...)
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: conditionReady, Status: ready, ObservedGeneration: u.GetGeneration(), Reason: reason, Message: message,
	})
}

// patchOf returns a merge patch that replaces the status, conditional on the version that was read.
// It returns nil if nothing changes.
func patchOf(u *unstructured.Unstructured, before, after *status) ([]byte, error) {
	if _, hasOne := u.Object["status"]; hasOne && equality.Semantic.DeepEqual(before, after) {
		return nil, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": u.GetResourceVersion()}, "status": after,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the status of ControllerRing %q: %w", u.GetName(), err)
	}
	return patch, nil
}
