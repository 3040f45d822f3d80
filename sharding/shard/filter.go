package shard

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// filtered returns the cache configuration of each kind, narrowed to the objects of this shard for
// the shard's Kinds.
func (s *Shard) filtered(o cache.Options, scheme *runtime.Scheme) (map[client.Object]cache.ByObject, error) {
	own, err := labels.NewRequirement(s.options.LabelPrefix.ShardLabel(s.options.Ring), selection.Equals, []string{s.options.Name})
	if err != nil {
		return nil, fmt.Errorf("selecting the objects of ring %q: %w", s.options.Ring, err)
	}
	filtered, configured := maps.Clone(o.ByObject), map[schema.GroupVersionKind]client.Object{}
	if filtered == nil {
		filtered = map[client.Object]cache.ByObject{}
	}
	for object := range o.ByObject {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return nil, fmt.Errorf("ByObject has %T: %w", object, err)
		}
		configured[kind] = object
	}
	for _, object := range s.options.Kinds {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return nil, fmt.Errorf("one of the Kinds is %T, which is not registered in the manager's scheme: %w", object, err)
		}
		if other, ok := configured[kind]; ok {
			object = other
		}
		by, err := narrow(filtered[object], o, *own)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.Kind, err)
		}
		filtered[object], configured[kind] = by, object
		s.namespaces[kind.GroupKind()] = namespacesOf(by, o)
	}
	return filtered, nil
}

// namespacesOf returns the namespaces whose objects are cached, or none if all are.
func namespacesOf(by cache.ByObject, o cache.Options) []string {
	configs := by.Namespaces
	if configs == nil {
		configs = o.DefaultNamespaces
	}
	if _, ok := configs[cache.AllNamespaces]; ok {
		return nil
	}
	return slices.Sorted(maps.Keys(configs))
}

// scopes returns the namespaces to list in order to find all objects of a kind that this shard can
// have. The shard may not have the right to list other namespaces.
func (s *Shard) scopes(kind schema.GroupKind) []string {
	if namespaces := s.namespaces[kind]; len(namespaces) > 0 {
		return namespaces
	}
	return []string{cache.AllNamespaces}
}

// narrow adds a requirement to the selectors of a cache configuration. It resolves defaults in the
// same order as the cache.
func narrow(by cache.ByObject, o cache.Options, own labels.Requirement) (cache.ByObject, error) {
	if by.Namespaces == nil && by.Label == nil {
		for namespace, config := range o.DefaultNamespaces {
			if config.LabelSelector != nil {
				return by, fmt.Errorf("the default of namespace %q has a label selector: repeat it in ByObject.Namespaces so that it can be narrowed", namespace)
			}
		}
	}
	by.Namespaces = maps.Clone(by.Namespaces)
	for namespace, config := range by.Namespaces {
		config.LabelSelector = also(own, config.LabelSelector, by.Label, o.DefaultNamespaces[namespace].LabelSelector, o.DefaultLabelSelector)
		by.Namespaces[namespace] = config
	}
	by.Label = also(own, by.Label, o.DefaultLabelSelector)
	return by, nil
}

// also returns the first selector that is set, with a requirement added. If none is set, it returns
// a selector with only the requirement.
func also(own labels.Requirement, selectors ...labels.Selector) labels.Selector {
	for _, selector := range selectors {
		if selector != nil {
			return selector.Add(own)
		}
	}
	return labels.NewSelector().Add(own)
}
