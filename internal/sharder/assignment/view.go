package assignment

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/api/sharding/v1alpha1"
	"nodekeeper.dev/internal/sharder/handover"
	"nodekeeper.dev/sharding/slots"
)

// conditionAdmission is the condition that is true while the API server assigns new objects.
const conditionAdmission = "AdmissionInstalled"

// policyInstalled is its reason if policies do that.
const policyInstalled = "PolicyInstalled"

// view is what decides about the objects of a ring. It is not changed after it was made.
type view struct {
	ring *v1alpha1.ClusterRing
	// now and next are the shards of each slot, nil if the ring has no table. They differ for the slots of
	// silent shards.
	now, next []string
	live      map[string]bool
	silent    map[string]bool
	selection selection
}

// selection says which namespaces belong to a ring.
type selection struct {
	// but are those that do not, if all others do; otherwise only are those that do.
	but, only map[string]bool
}

// has reports whether the objects of a namespace belong to the ring. Those that are cluster-scoped, with
// the namespace "", always do.
func (s selection) has(namespace string) bool {
	return namespace == "" || s.only[namespace] || s.only == nil && !s.but[namespace]
}

// selects reports whether an object belongs to the ring. Namespaces are selected themselves, as by policies.
func (v *view) selects(mapping *meta.RESTMapping, m *metav1.PartialObjectMetadata) bool {
	if mapping.Resource.Resource == "namespaces" && mapping.Resource.Group == "" {
		return v.selection.has(m.Name)
	}
	return v.selection.has(m.Namespace)
}

// leaves reports whether a namespace may belong to a ring by s, and does not by now.
func (s selection) leaves(now selection) bool {
	if s.only == nil {
		return !s.equal(now)
	}
	for name := range s.only {
		if !now.has(name) {
			return true
		}
	}
	return false
}

func (s selection) equal(other selection) bool {
	return (s.only == nil) == (other.only == nil) && maps.Equal(s.only, other.only) && maps.Equal(s.but, other.but)
}

// newView returns the view of a ring. joined are the shards whose Leases show that they live; the table
// may not have them yet.
func newView(ring *v1alpha1.ClusterRing, joined []string, selection selection) *view {
	v := &view{ring: ring, live: map[string]bool{}, silent: map[string]bool{}, selection: selection}
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
	v.now = owners(table.Shards, table.Slots)
	v.next = owners(table.Shards, table.Next)
	if v.next == nil {
		v.next = v.now
	}
	for slot, name := range v.now {
		if v.next[slot] != name {
			v.silent[name] = true
		}
	}
	return v
}

// owners returns the shard of each slot, nil if the table is not as the sharder writes it: people can
// edit a status.
func owners(shards []string, indexes []int32) []string {
	if len(indexes) != slots.Count {
		return nil
	}
	names := make([]string, len(indexes))
	for slot, i := range indexes {
		if i < 0 || int(i) >= len(shards) {
			return nil
		}
		names[slot] = shards[i]
	}
	return names
}

// place returns where an object with a key belongs.
func (v *view) place(key string) handover.Place {
	if v.now == nil {
		return handover.Place{}
	}
	slot := slots.Slot(key)
	return handover.Place{Now: v.now[slot], Next: v.next[slot]}
}

// generation returns that of the table, 0 if there is none.
func (v *view) generation() int64 {
	if v.ring.Status.Table == nil {
		return 0
	}
	return v.ring.Status.Table.Generation
}

// liveNames returns the names of the live shards in order.
func (v *view) liveNames() []string { return slices.Sorted(maps.Keys(v.live)) }

// isUnderPolicy reports whether the API server assigns new objects.
func (v *view) isUnderPolicy() bool {
	c := meta.FindStatusCondition(v.ring.Status.Conditions, conditionAdmission)
	return c != nil && c.Status == "True" && c.Reason == policyInstalled
}

// isLabelled reports whether the status says that objects of a resource may have labels: only then may
// this package set them.
func (v *view) isLabelled(r v1alpha1.GroupResource) bool {
	return slices.Contains(v.ring.Status.LabelledResources, r)
}

// decidesLike reports whether all that was decided by a former view is right by this one, too.
func (v *view) decidesLike(former *view) bool {
	return former.ring.Generation == v.ring.Generation && former.isUnderPolicy() == v.isUnderPolicy() &&
		slices.Equal(former.ring.Status.LabelledResources, v.ring.Status.LabelledResources) &&
		maps.Equal(former.live, v.live) && slices.Equal(former.now, v.now) && slices.Equal(former.next, v.next) &&
		former.generation() == v.generation() && former.selection.equal(v.selection)
}

// hasChildren reports whether the ring has controlled resources. Of these, no watch shows the objects that
// have no label if policies assign new ones.
func (v *view) hasChildren() bool {
	return slices.ContainsFunc(v.ring.Spec.Resources, func(r v1alpha1.Resource) bool { return len(r.ControlledResources) > 0 })
}

// needsPass reports whether objects of live shards may have to move since a former view: after what an
// exception watch does not show. A death alone needs none.
func (v *view) needsPass(former *view) bool {
	if former == nil || former.now == nil || v.now == nil || former.ring.Generation != v.ring.Generation || former.isUnderPolicy() != v.isUnderPolicy() || former.selection.leaves(v.selection) ||
		v.hasChildren() && !former.selection.equal(v.selection) {
		return true
	}
	for slot, name := range v.now {
		for _, before := range []string{former.now[slot], former.next[slot]} {
			if before != name && v.live[before] {
				return true
			}
		}
	}
	return false
}
