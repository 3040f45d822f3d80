package nodes

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// changes are what a write changes of a Node.
type changes struct {
	// labels and annotations are what the Node must have; nil removes a key.
	labels, annotations map[string]*string
	// taints replaces all taints of the Node; nil leaves them unchanged.
	taints []corev1.Taint
}

// ifUnchanged returns a merge patch that is conditional on the revision that was read.
func (c changes) ifUnchanged(read *nodeview.Node) mergePatch {
	metadata := map[string]any{"uid": read.UID, "resourceVersion": read.Revision, "labels": c.labels}
	if len(c.annotations) > 0 {
		metadata["annotations"] = c.annotations
	}
	patch := mergePatch{"metadata": metadata}
	if c.taints != nil {
		patch["spec"] = map[string]any{"taints": c.taints}
	}
	return patch
}

// ifSame returns a JSON patch that is conditional on the incarnation, its marker, the identity of
// its machine, and everything that the patch replaces. If the Node was gated, the taints are a
// condition, too: the startup taint may have been removed and added again. Whatever else has
// changed, such as the status, stays. ifSame assumes that a Node has annotations, because every
// kubelet sets one.
func (c changes) ifSame(read *nodeview.Node) jsonPatch {
	p := jsonPatch{}
	p.test("/metadata/uid", read.UID)
	p.test("/spec/providerID", orNull(read.Identity.ProviderID))
	p.test("/status/nodeInfo/systemUUID", read.Identity.SystemUUID)
	if !hasLabels(read) {
		p.test("/metadata/labels", nil)
		p.add("/metadata/labels", struct{}{})
	}
	if _, isReplaced := c.labels[labels.Marker]; !isReplaced {
		p.test("/metadata/labels/"+labels.Marker, read.MarkerValue())
	}
	for _, key := range slices.Sorted(maps.Keys(c.labels)) {
		before := labels.ValueOf(read.Labels, key)
		if key == labels.Marker {
			before = read.MarkerValue()
		}
		p.replace(labels.Pointer("/metadata/labels", key), before, c.labels[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.annotations)) {
		p.replace(labels.Pointer("/metadata/annotations", key), labels.ValueOf(read.Labels, labels.AnnotationKey(key)), c.annotations[key])
	}
	if c.taints != nil || read.Gated {
		p.test("/spec/taints", listOrNull(read.Taints))
	}
	if c.taints != nil {
		p.add("/spec/taints", c.taints)
	}
	return p
}

// hasLabels reports whether the view of a Node has any labels, besides annotations and taints.
func hasLabels(n *nodeview.Node) bool {
	if n.MarkerValue() != nil {
		return true
	}
	for key := range n.Labels {
		if labels.IsLabel(key) {
			return true
		}
	}
	return false
}

// changesFor returns the changes that turn the viewed part of a Node into wanted: its labels, and
// the preserved annotations and taints, see [nodeview.Preserved]. They remove the startup taint.
// Everything else stays.
func changesFor(read *nodeview.Node, wanted Wanted) changes {
	d := labels.ChangesBetween(read.Labels, wanted.Labels)
	c := changes{labels: d.Labels, annotations: d.Annotations}
	if read.Marker != wanted.Marker || wanted.Marker == "" && read.MarkerValue() != nil {
		c.labels[labels.Marker] = valueOrNull(wanted.Marker)
	}
	if !d.Taints && !read.HasStartupTaint() {
		return c
	}
	c.taints = taintsWith(read.Taints, read.Labels, wanted.Labels)
	return c
}

// valueOrNull returns what a patch sets a label to; nil removes it.
func valueOrNull(value string) *string {
	if value == "" {
		return nil
	}
	return &value
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
