package assignment

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// keys are the keys of the sharding metadata of one ring.
type keys struct{ shard, drain, children string }

func keysOf(prefix v1alpha1.Prefix, ring string) keys {
	return keys{shard: prefix.ShardLabel(ring), drain: prefix.DrainLabel(ring), children: prefix.ChildrenAnnotation(ring)}
}

// removal returns the change that removes all sharding metadata of the ring.
func (k keys) removal() change {
	return change{labels: map[string]*string{k.shard: nil, k.drain: nil}, annotations: map[string]*string{k.children: nil}}
}

// strip returns the part of an object that is kept in memory. It is idempotent. It distinguishes a
// nil map from an empty one, as patches require.
func (k keys) strip(keyLabel string, m *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	kept := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Labels: only(m.Labels, k.shard, k.drain, keyLabel), Annotations: only(m.Annotations, k.children),
	}}
	if owner := metav1.GetControllerOf(m); owner != nil {
		kept.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return kept
}

// only returns the entries with these keys, or nil if the map is nil.
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
