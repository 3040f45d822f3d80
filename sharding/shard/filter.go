package shard

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// filtered returns which objects of each kind are cached: of the Kinds, those of this shard alone.
func (s *Shard) filtered(o cache.Options, scheme *runtime.Scheme) (map[client.Object]cache.ByObject, error) {
	own, err := labels.NewRequirement(s.options.LabelPrefix.ShardLabel(s.options.Ring), selection.Equals, []string{s.options.Name})
	if err != nil {
		return nil, fmt.Errorf("selecting the objects of ring %q: %w", s.options.Ring, err)
	}
	filtered, given := maps.Clone(o.ByObject), map[schema.GroupVersionKind]client.Object{}
	if filtered == nil {
		filtered = map[client.Object]cache.ByObject{}
	}
	for object := range o.ByObject {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return nil, fmt.Errorf("ByObject has %T: %w", object, err)
		}
		given[kind] = object
	}
	for _, object := range s.options.Kinds {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return nil, fmt.Errorf("one of the Kinds is %T, which the scheme of the manager does not know: %w", object, err)
		}
		if other, ok := given[kind]; ok {
			object = other
		}
		by, err := narrow(filtered[object], o, *own)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.Kind, err)
		}
		filtered[object], given[kind] = by, object
	}
	return filtered, nil
}

// narrow adds a requirement to what is cached of a kind. It takes selectors from where the cache would
// take them.
func narrow(by cache.ByObject, o cache.Options, own labels.Requirement) (cache.ByObject, error) {
	if by.Namespaces == nil && by.Label == nil {
		for namespace, config := range o.DefaultNamespaces {
			if config.LabelSelector != nil {
				return by, fmt.Errorf("the default of namespace %q has a label selector: repeat it in ByObject.Namespaces, so that it can be narrowed", namespace)
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

// also adds a requirement to the first selector that is set.
func also(own labels.Requirement, selectors ...labels.Selector) labels.Selector {
	for _, selector := range selectors {
		if selector != nil {
			return selector.Add(own)
		}
	}
	return labels.NewSelector().Add(own)
}
