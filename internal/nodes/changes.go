package nodes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/identity"
)

// changes are what a write changes of a Node.
type changes struct {
	// labels and annotations are what the Node must have; nil removes a key.
	labels, annotations map[string]*string
	// taints replaces all taints of the Node; nil leaves them unchanged.
	taints []corev1.Taint
}

// ifUnchanged returns a merge patch (RFC 7396) that is conditional on the revision that was read.
func (c changes) ifUnchanged(read *metav1.PartialObjectMetadata) (client.Patch, error) {
	metadata := map[string]any{"uid": read.UID, "resourceVersion": read.ResourceVersion, "labels": c.labels}
	if len(c.annotations) > 0 {
		metadata["annotations"] = c.annotations
	}
	patch := map[string]any{"metadata": metadata}
	if c.taints != nil {
		patch["spec"] = map[string]any{"taints": c.taints}
	}
	body, err := json.Marshal(patch)
	return client.RawPatch(types.MergePatchType, body), err
}

// ifSame returns a JSON patch (RFC 6902) that is conditional on the incarnation, its marker, the
// identity of its machine if that was read, and everything that the patch replaces. Whatever else
// has changed, such as the status, stays. It assumes that a Node has annotations, because every
// kubelet sets one.
func (c changes) ifSame(read *metav1.PartialObjectMetadata) (client.Patch, error) {
	p := jsonPatch{}
	p.test("/metadata/uid", read.UID)
	if machine, isRead := identity.Noted(read); isRead {
		p.test("/spec/providerID", orNull(machine.ProviderID))
		p.test("/status/nodeInfo/systemUUID", machine.SystemUUID)
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(read.Labels)), labels.IsLabel) {
		p.test("/metadata/labels", nil)
		p.add("/metadata/labels", struct{}{})
	}
	if _, changes := c.labels[labels.Marker]; !changes {
		p.test("/metadata/labels/"+labels.Marker, orNull(read.Labels[labels.Marker]))
	}
	for key, value := range inOrder(c.labels) {
		p.replace("/metadata/labels/"+pointer(key), valueOf(read.Labels, key), value)
	}
	for key, value := range inOrder(c.annotations) {
		p.replace("/metadata/annotations/"+pointer(key), valueOf(read.Labels, labels.AnnotationKey(key)), value)
	}
	if c.taints != nil {
		before, _ := nodeview.Taints(read)
		p.test("/spec/taints", listOrNull(before))
		p.add("/spec/taints", c.taints)
	}
	return p.patch()
}

// changesFor returns the changes that turn the viewed part of a Node into wanted: its labels, and
// the preserved annotations and taints, see [nodeview.Preserved]. They remove the startup taint.
// Everything else stays.
func changesFor(read *metav1.PartialObjectMetadata, wanted map[string]string) (changes, error) {
	d := labels.ChangesBetween(read.Labels, wanted)
	c := changes{labels: d.Labels, annotations: d.Annotations}
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
