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

// changes is what a merge patch changes of a Node.
type changes struct {
	metadata map[string]any
	// taints replace all taints of the Node; nil leaves them as they are.
	taints []corev1.Taint
}

// changesFor returns the changes that turn what was seen of a Node into wanted: its labels, and the
// annotations and taints that are kept, see [nodeview.Preserved]. The startup taint goes. What else
// was not seen stays.
func changesFor(read *metav1.PartialObjectMetadata, wanted map[string]string) (changes, error) {
	d := labels.ChangesBetween(read.Labels, wanted)
	c := changes{metadata: map[string]any{"labels": d.Labels}}
	if len(d.Annotations) > 0 {
		c.metadata["annotations"] = d.Annotations
	}
	if !d.Taints && !nodeview.HasGate(read) {
		return c, nil
	}
	before, ok := nodeview.Taints(read)
	if !ok {
		return changes{}, fmt.Errorf("changing the taints of node %q: its spec was not read", read.Name)
	}
	c.taints = taintsWith(before, read.Labels, wanted)
	return c, nil
}

// taintsWith replaces the taints that were seen by those that are wanted, without the startup taint.
// Taints that were not seen, and those that do not change, stay at their place in the list.
func taintsWith(before []corev1.Taint, seen, wanted map[string]string) []corev1.Taint {
	after := make([]corev1.Taint, 0, len(before))
	left := map[string]string{}
	maps.Copy(left, wanted)
	for _, taint := range before {
		if nodeview.IsGate(taint) {
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
