package assignment

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
)

// conditionAdmission is the type of the condition that is true while the API server assigns new
// objects.
const conditionAdmission = "AdmissionInstalled"

// policyInstalled is the reason of that condition if policies assign them.
const policyInstalled = "PolicyInstalled"

// view is the state of a ring on which decisions are based. It is immutable.
type view struct {
	ring *v1alpha1.ClusterRing
	// table is the table of the ring.
	table     place.Table
	live      map[string]bool
	selection place.Selection
	// left are the shards that were leaving when they died. No decision depends on them.
	left []string
}

// selects reports whether an object belongs to the ring.
func (v *view) selects(mapping *meta.RESTMapping, m *metav1.PartialObjectMetadata) bool {
	return v.selection.Has(namespaceOf(mapping, m))
}

// namespaceOf returns the namespace that determines whether an object belongs to the ring.
func namespaceOf(mapping *meta.RESTMapping, m *metav1.PartialObjectMetadata) string {
	resource := mapping.Resource.GroupResource()
	return place.NamespaceOf(v1alpha1.GroupResource{Group: resource.Group, Resource: resource.Resource}, m.Namespace, m.Name)
}

// newView returns the view of a ring. The argument joined lists the shards whose Leases show that
// they are alive; the table may not contain them yet.
func newView(ring *v1alpha1.ClusterRing, joined []string, selection place.Selection) *view {
	v := &view{ring: ring, live: map[string]bool{}, table: place.TableOf(ring.Status.Table), selection: selection}
	for _, name := range joined {
		v.live[name] = true
	}
	table := ring.Status.Table
	if table == nil {
		return v
	}
	for _, name := range table.Shards {
		v.live[name] = true
	}
	return v
}

// generation returns the generation of the table, or 0 if there is no table.
func (v *view) generation() int64 {
	if v.ring.Status.Table == nil {
		return 0
	}
	return v.ring.Status.Table.Generation
}

// liveNames returns the names of the live shards, sorted.
func (v *view) liveNames() []string { return slices.Sorted(maps.Keys(v.live)) }

// isUnderPolicy reports whether the API server assigns new objects.
func (v *view) isUnderPolicy() bool {
	c := meta.FindStatusCondition(v.ring.Status.Conditions, conditionAdmission)
	return c != nil && c.Status == "True" && c.Reason == policyInstalled
}

// isLabelled reports whether the status lists a resource as labelled. Only then may this package
// set labels on its objects.
func (v *view) isLabelled(r v1alpha1.GroupResource) bool {
	return slices.Contains(v.ring.Status.LabelledResources, r)
}

// decidesLike reports whether all decisions based on a former view are also valid for this one.
func (v *view) decidesLike(former *view) bool {
	return former.ring.Generation == v.ring.Generation && former.isUnderPolicy() == v.isUnderPolicy() && place.IsFenced(former.ring, &former.ring.Status) == place.IsFenced(v.ring, &v.ring.Status) &&
		slices.Equal(former.ring.Status.LabelledResources, v.ring.Status.LabelledResources) &&
		maps.Equal(former.live, v.live) && slices.Equal(former.table.Now, v.table.Now) && slices.Equal(former.table.Next, v.table.Next) &&
		former.generation() == v.generation() && former.selection.Equal(v.selection)
}

// needsResync reports whether objects of live shards may have to move since a former view, because
// the orphan watch does not cover them. A death alone requires no resync.
func (v *view) needsResync(former *view) bool {
	if former == nil || former.table.Now == nil || v.table.Now == nil || former.ring.Generation != v.ring.Generation || former.isUnderPolicy() != v.isUnderPolicy() || former.selection.Leaves(v.selection) {
		return true
	}
	for slot, name := range v.table.Now {
		for _, before := range []string{former.table.Now[slot], former.table.Next[slot]} {
			if before != name && v.live[before] {
				return true
			}
		}
	}
	return false
}
