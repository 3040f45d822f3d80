package nodes

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// changes are the changes that a merge patch makes to a Node.
type changes struct {
	metadata map[string]any
	// taints replaces all taints of the Node; nil leaves them unchanged.
	taints []corev1.Taint
}

// changesFor returns the changes that turn the viewed part of a Node into wanted: its labels, and
// the preserved annotations and taints, see [nodeview.Preserved]. They remove the startup taint.
// Everything else stays.
func changesFor(read *metav1.PartialObjectMetadata, wanted map[string]string) (changes, error) {
	d := labels.ChangesBetween(read.Labels, wanted)
	c := changes{metadata: map[string]any{"labels": d.Labels}}
	if len(d.Annotations) > 0 {
		c.metadata["annotations"] = d.Annotations
	}
	if !d.Taints && !nodeview.HasStartupTaint(read) {
		return c, nil
	}
	before, ok := nodeview.Taints(read)
	if !ok {
		return changes{}, fmt.Errorf("changing the taints of node %q: its spec was not read", read.Name)
	}
	c.taints = taintsWith(before, read.Labels, wanted)
	return c, nil
}

// taintsWith replaces the viewed taints by the wanted ones, and removes the startup taint. Taints
// outside the view and unchanged ones keep their position in the list.
func taintsWith(before []corev1.Taint, seen, wanted map[string]string) []corev1.Taint {
	after := make([]corev1.Taint, 0, len(before))
	left := map[string]string{}
	maps.Copy(left, wanted)
	for _, taint := range before {
		if nodeview.IsStartupTaint(taint) {
			continue
		}
		key := labels.TaintKey(taint.Key, string(taint.Effect))
		value, isWanted := wanted[key]
		if _, isSeen := seen[key]; isSeen && !isWanted {
			continue
		}
		if isWanted && value != taint.Value {
			taint.Value, taint.TimeAdded = value, nil
		}
		delete(left, key)
		after = append(after, taint)
	}
	for _, key := range slices.Sorted(maps.Keys(left)) {
		if taint, effect, ok := labels.AsTaint(key); ok {
			after = append(after, corev1.Taint{Key: taint, Value: left[key], Effect: corev1.TaintEffect(effect)})
		}
	}
	return after
}
