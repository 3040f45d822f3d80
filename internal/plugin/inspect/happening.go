package inspect

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/queue"
)

// Happening is an event of a node that a watch shows.
type Happening struct {
	// What is the kind: one of the constants below.
	What string `json:"what"`
	// Node is the name of the node, or empty for a malformed ConfigMap that does not name one.
	Node string `json:"node"`
	// Object is the name of a malformed ConfigMap.
	Object string `json:"object,omitempty"`
	Text   string `json:"text"`
}

// The kinds of happenings.
const (
	// EventRecorded: an event of the node is in the queue.
	EventRecorded = "recorded"
	// ObjectMalformed: an object of nodekeeper cannot be parsed.
	ObjectMalformed = "malformed"
	// LabelsSaved: the record has the labels of the node.
	LabelsSaved = "saved"
	// LabelsRestored: the labels of the node were restored.
	LabelsRestored = "restored"
	// RecordForgotten: the record of the node was removed.
	RecordForgotten = "forgotten"
)

// TransactionHappened returns what the change of a transaction means, if anything; nil means that
// it does not exist. The removal of a transaction means nothing: its effect shows in other objects.
func TransactionHappened(before, after *corev1.ConfigMap) (Happening, bool) {
	if after == nil || before != nil {
		return Happening{}, false
	}
	pending, err := queue.Parse(after)
	if err != nil {
		m := Malformed{Object: after, Reason: err}
		return Happening{What: ObjectMalformed, Node: m.Node(), Object: after.Name, Text: err.Error()}, true
	}
	return happened(EventRecorded, pending.Node, "%s at version %s, %s", pending.Type, pending.Revision, amount.Of(len(pending.Labels), "label")), true
}

// RecordHappened returns what the change of a record means, if anything; nil means that it does not
// exist.
func RecordHappened(before, after *corev1.ConfigMap) (Happening, bool) {
	switch {
	case !saves(after):
		if !saves(before) { // it was already forgotten
			return Happening{}, false
		}
		return happened(RecordForgotten, before.Name, "its record is removed"), true
	case before != nil && before.Data[labels.Marker] == after.Data[labels.Marker]:
		return Happening{}, false
	}
	saved := ParseSaved(after)
	if saved.Unreadable != nil {
		return Happening{What: ObjectMalformed, Node: after.Name, Object: after.Name, Text: saved.Unreadable.Error()}, true
	}
	return happened(LabelsSaved, after.Name, "%s, version %s", amount.Of(len(saved.Record.Labels), "label"), saved.Record.Revision), true
}

// NodeHappened returns what the change of a Node means, if anything; nil means that it does not
// exist.
func NodeHappened(before, after *metav1.PartialObjectMetadata) (Happening, bool) {
	if after == nil {
		return Happening{}, false
	}
	marker := after.Labels[labels.Marker]
	if marker == "" || marker == labels.Pending || before != nil && before.UID == after.UID && before.Labels[labels.Marker] == marker {
		return Happening{}, false
	}
	return happened(LabelsRestored, after.Name, "%s, from version %s", amount.Of(len(after.Labels)-1, "label"), marker), true
}

// saves reports whether a ConfigMap, which may be nil, is a record, valid or not, and not a floor.
func saves(cm *corev1.ConfigMap) bool { return cm != nil && ParseSaved(cm).Floor.Object == nil }

func happened(what, node, format string, args ...any) Happening {
	return Happening{What: what, Node: node, Text: fmt.Sprintf(format, args...)}
}
