package place

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// Selection says which namespaces belong to a ring. The zero value has all. It is not changed after it was
// made.
type Selection struct {
	// but are those that do not belong to the ring, if all others do; otherwise only are those that do.
	but, only map[string]bool
}

// AllBut returns the selection of all namespaces but these.
func AllBut(namespaces ...string) Selection { return Selection{but: set(namespaces)} }

// Only returns the selection of these namespaces.
func Only(namespaces ...string) Selection { return Selection{only: set(namespaces)} }

func set(names []string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// SelectionOf returns which namespaces belong to a ring. list lists those that a selector matches: it is
// called if the ring has one that does not match everything. Without a selector, all belong to the ring but
// kube-system and the namespace of the sharder.
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

// Has reports whether the objects of a namespace belong to the ring. Those that are cluster-scoped, with
// the namespace "", always do.
func (s Selection) Has(namespace string) bool {
	return namespace == "" || s.only[namespace] || s.only == nil && !s.but[namespace]
}

// Selects reports whether an object of a resource belongs to the ring. Namespaces are selected themselves,
// as by policies.
func (s Selection) Selects(resource v1alpha1.GroupResource, namespace, name string) bool {
	if IsNamespaces(resource) {
		return s.Has(name)
	}
	return s.Has(namespace)
}

// IsNamespaces reports whether a resource is that of Namespaces.
func IsNamespaces(r v1alpha1.GroupResource) bool { return r.Resource == "namespaces" && r.Group == "" }

// Leaves reports whether a namespace may belong to a ring by s, and does not by now.
func (s Selection) Leaves(now Selection) bool {
	if s.only == nil {
		return !s.Equal(now)
	}
	for name := range s.only {
		if !now.Has(name) {
			return true
		}
	}
	return false
}

// Equal reports whether two selections are the same.
func (s Selection) Equal(other Selection) bool {
	return (s.only == nil) == (other.only == nil) && maps.Equal(s.only, other.only) && maps.Equal(s.but, other.but)
}
