package assignment

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/api/sharding/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// keys are the keys of the sharding metadata of one ring.
type keys struct{ shard, drain, children string }

func keysOf(prefix v1alpha1.Prefix, ring string) keys {
	return keys{shard: prefix.ShardLabel(ring), drain: prefix.DrainLabel(ring), children: prefix.ChildrenAnnotation(ring)}
}

// strip returns what is kept in memory of an object. A map that exists stays one, as a patch needs to
// know. It can be called again with what it has returned.
func strip(k keys, keyLabel string, m *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	kept := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Labels: only(m.Labels, k.shard, k.drain, keyLabel), Annotations: only(m.Annotations, k.children),
	}}
	if owner := metav1.GetControllerOf(m); owner != nil {
		kept.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return kept
}

// only returns the entries with these keys, nil if there is no map.
func only(all map[string]string, keys ...string) map[string]string {
	if all == nil {
		return nil
	}
	kept := map[string]string{}
	for _, key := range keys {
		if value, ok := all[key]; ok {
			kept[key] = value
		}
	}
	return kept
}

// slotKey returns the key by which a main object has its slot.
func slotKey(main v1alpha1.Resource, kind schema.GroupVersionKind, m *metav1.PartialObjectMetadata) string {
	return keyOf(main, m, slots.Object{Group: kind.Group, Kind: kind.Kind, Namespace: m.Namespace, Name: m.Name})
}

// keyOf returns the key of a main object, or of what it controls: labelled is which of the two is at hand.
// It is what the policies compute, too.
func keyOf(main v1alpha1.Resource, labelled *metav1.PartialObjectMetadata, o slots.Object) string {
	switch main.Key {
	case v1alpha1.KeyNamespace:
		return o.Namespace
	case v1alpha1.KeyLabel:
		if value, ok := labelled.Labels[main.KeyLabel]; ok {
			return value
		}
	case v1alpha1.KeyName:
	}
	return o.Key()
}
