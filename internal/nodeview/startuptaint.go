package nodeview

import (
	"iter"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
)

// StartupTaintKey is the key of the startup taint of a Node whose labels are not restored yet. Its
// effect is NoSchedule. A program that adds the taint must also set the marker [labels.Pending]: by
// default, watchers read only metadata and do not see the taint.
const StartupTaintKey = "nodekeeper.dev/restoring"

// IsStartupTaint reports whether a taint is the startup taint.
func IsStartupTaint(taint corev1.Taint) bool {
	return taint.Key == StartupTaintKey && taint.Effect == corev1.TaintEffectNoSchedule
}

// StartupTaint returns the startup taint.
func StartupTaint() corev1.Taint {
	return corev1.Taint{Key: StartupTaintKey, Effect: corev1.TaintEffectNoSchedule}
}

// OpenCommands returns the kubectl commands that let pods onto a gated Node. They also remove the
// marker, because Nodes that have it are reported.
func OpenCommands(node string) string {
	return "kubectl taint node " + node + " " + StartupTaintKey + "-; kubectl label node " + node + " " + labels.Marker + "-"
}

// GatedSince returns [Node].GatedSince for the metadata of a Node.
func GatedSince(n *metav1.ObjectMeta) time.Time {
	if n.Labels[labels.Marker] != labels.Pending {
		return time.Time{}
	}
	if at := MarkerSetAt(n.ManagedFields); at != nil {
		return at.Time
	}
	return n.CreationTimestamp.Time
}

// MarkerSetAt returns when the field manager that set a Node's marker last changed any field. It
// returns nil if that is unknown.
func MarkerSetAt(managed []metav1.ManagedFieldsEntry) *metav1.Time {
	var first *metav1.Time
	for at := range setterTimes(managed, "f:"+labels.Marker) {
		if first == nil || at.Before(first) {
			first = at
		}
	}
	return first
}

// TaintsSetAt returns when a field manager that has set taints of a Node last changed any field,
// the latest if there are several. It returns nil if none has.
func TaintsSetAt(managed []metav1.ManagedFieldsEntry) *metav1.Time {
	var last *metav1.Time
	for at := range setterTimes(managed, "f:taints") {
		if last == nil || last.Before(at) {
			last = at
		}
	}
	return last
}

// setterTimes returns when each field manager that owns a field last changed any field.
func setterTimes(managed []metav1.ManagedFieldsEntry, field string) iter.Seq[*metav1.Time] {
	return func(yield func(*metav1.Time) bool) {
		for _, entry := range managed {
			owns := entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"`+field+`"`)
			if owns && entry.Time != nil && !yield(entry.Time) {
				return
			}
		}
	}
}
