package nodeview

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
)

// GateTaint is the key of the startup taint of a Node whose labels are not back yet. Its effect is
// NoSchedule. A program that adds the taint must also set the marker [labels.Pending]: by default,
// watchers read metadata only and do not see the taint.
const GateTaint = "nodekeeper.dev/restoring"

// IsGate reports whether a taint is the startup taint.
func IsGate(taint corev1.Taint) bool {
	return taint.Key == GateTaint && taint.Effect == corev1.TaintEffectNoSchedule
}

// Gate returns the startup taint.
func Gate() corev1.Taint { return corev1.Taint{Key: GateTaint, Effect: corev1.TaintEffectNoSchedule} }

// OpenByHand returns the commands by which people let pods onto a gated Node. They also remove the
// marker, by which such Nodes are reported.
func OpenByHand(node string) string {
	return "kubectl taint node " + node + " " + GateTaint + "-; kubectl label node " + node + " " + labels.Marker + "-"
}

// Gated reports whether a Node waits for its labels behind the startup taint: it has the marker
// [labels.Pending], or the taint is among its [Taints].
func Gated(n *metav1.PartialObjectMetadata) bool {
	return n.Labels[labels.Marker] == labels.Pending || HasGate(n)
}

// HasGate reports whether the startup taint is among the [Taints] of a Node.
func HasGate(n *metav1.PartialObjectMetadata) bool {
	taints, _ := Taints(n)
	return slices.ContainsFunc(taints, IsGate)
}

// gatedSince is the annotation, in memory only, that says when the gate of a Node was closed.
const gatedSince = notePrefix + "gated-since"

// GateClosedAt returns when the gate of a Node was closed: when the marker [labels.Pending] was set,
// or, if it is not known, when the Node was created. The field manager that set the marker may have
// changed other fields since; then it is the time of the last of these changes. It returns zero if
// the Node does not have that marker. It goes by managedFields, which caches strip: see [NoteGate].
func GateClosedAt(n *metav1.PartialObjectMetadata) time.Time {
	if n.Labels[labels.Marker] != labels.Pending {
		return time.Time{}
	}
	if at := MarkerSetAt(n); at != nil {
		return at.Time
	}
	return n.CreationTimestamp.Time
}

// MarkerSetAt returns when the marker of a Node was set, or when its field manager last changed
// another field since. It returns nil if that is not known.
func MarkerSetAt(n *metav1.PartialObjectMetadata) *metav1.Time {
	var first *metav1.Time
	for _, entry := range n.ManagedFields {
		owns := entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+labels.Marker+`"`)
		if owns && entry.Time != nil && (first == nil || entry.Time.Before(first)) {
			first = entry.Time
		}
	}
	return first
}

// NoteGate notes on a Node in memory when its gate was closed, see [NotedGate].
func NoteGate(n *metav1.PartialObjectMetadata) {
	delete(n.Annotations, gatedSince) // whoever may patch the Node can write it
	if at := GateClosedAt(n); !at.IsZero() {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, gatedSince, at.UTC().Format(time.RFC3339))
	}
}

// NotedGate returns what [GateClosedAt] said when [NoteGate] noted it, or zero if it did not.
func NotedGate(n *metav1.PartialObjectMetadata) time.Time {
	at, err := time.Parse(time.RFC3339, n.Annotations[gatedSince])
	if err != nil {
		return time.Time{}
	}
	return at
}
