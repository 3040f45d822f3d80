package place

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// Selection is the set of namespaces that belong to a ring. The zero value contains all namespaces.
// A Selection is immutable.
type Selection struct {
	// excluded, if set, lists the namespaces outside the ring; otherwise included, if set, lists
	// the namespaces inside.
	excluded, included map[string]bool
}

// AllBut returns the selection of all namespaces except the given ones.
func AllBut(namespaces ...string) Selection { return Selection{excluded: set(namespaces)} }

// Only returns the selection of the given namespaces.
func Only(namespaces ...string) Selection { return Selection{included: set(namespaces)} }

func set(names []string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// SelectionOf returns the namespaces that belong to a ring. If the ring has a selector that does
// not match everything, SelectionOf calls list to get the matching namespaces. Without a selector,
// all namespaces except kube-system and the sharder's belong to the ring.
func SelectionOf(ring *v1alpha1.ClusterRing, sharderNamespace string, list func(labels.Selector) ([]string, error)) (Selection, error) {
	if ring.Spec.NamespaceSelector == nil {
		return AllBut(metav1.NamespaceSystem, sharderNamespace), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(ring.Spec.NamespaceSelector)
	if err != nil {
		return Selection{}, fmt.Errorf("reading the namespace selector of ring %q: %w", ring.Name, err)
	}
	if selector.Empty() {
		return Selection{}, nil
	}
	names, err := list(selector)
	if err != nil {
		return Selection{}, fmt.Errorf("listing the namespaces of ring %q: %w", ring.Name, err)
	}
	return Only(names...), nil
}

// Namespaces returns the names of the namespaces that belong to the ring, sorted. If the selection
// contains all namespaces but some, isKnown is false.
func (s Selection) Namespaces() (names []string, isKnown bool) {
	return slices.Sorted(maps.Keys(s.included)), s.included != nil
}

// Has reports whether objects in a namespace belong to the ring. Cluster-scoped objects, with the
// namespace "", always do.
func (s Selection) Has(namespace string) bool {
	return namespace == "" || s.included[namespace] || s.included == nil && !s.excluded[namespace]
}

// Selects reports whether an object of a resource belongs to the ring. As in admission policies, a
// Namespace object is selected by its own name.
func (s Selection) Selects(resource v1alpha1.GroupResource, namespace, name string) bool {
	return s.Has(NamespaceOf(resource, namespace, name))
}

// NamespaceOf returns the namespace that determines whether an object of a resource belongs to a
// ring.
func NamespaceOf(resource v1alpha1.GroupResource, namespace, name string) string {
	if IsNamespaces(resource) {
		return name
	}
	return namespace
}

// IsNamespaces reports whether a resource is the core resource namespaces.
func IsNamespaces(r v1alpha1.GroupResource) bool { return r.Resource == "namespaces" && r.Group == "" }

// Leaves reports whether s may contain a namespace that now does not.
func (s Selection) Leaves(now Selection) bool {
	if s.included == nil {
		return !s.Equal(now)
	}
	for name := range s.included {
		if !now.Has(name) {
			return true
		}
	}
	return false
}

// Equal reports whether two selections are equal.
func (s Selection) Equal(other Selection) bool {
	return (s.included == nil) == (other.included == nil) && maps.Equal(s.included, other.included) && maps.Equal(s.excluded, other.excluded)
}
