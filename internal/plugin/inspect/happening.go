package inspect

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/queue"
)

// Happening is something that a watch shows to have happened to a node.
type Happening struct {
	// What is one of the constants below.
	What string `json:"what"`
	// Node is the name of the node. It is "" if something is malformed and does not say of which
	// node it is.
	Node string `json:"node"`
	// Object is the name of the ConfigMap that is malformed.
	Object string `json:"object,omitempty"`
	Text   string `json:"text"`
}

// The kinds of what happens to a node.
const (
	// EventRecorded: an event of the node is in the queue.
	EventRecorded = "recorded"
	// ObjectMalformed: something of nodekeeper's cannot be read.
	ObjectMalformed = "malformed"
	// LabelsSaved: the labels of the node are on record.
	LabelsSaved = "saved"
	// LabelsRestored: the node got its labels back.
	LabelsRestored = "restored"
	// RecordForgotten: the record of the node is removed.
	RecordForgotten = "forgotten"
)

// TransactionHappened returns what the change of a transaction shows; nil stands for one that is not
// there. It reports false for one that is gone: what came of it shows elsewhere.
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

// RecordHappened returns what the change of a record shows; nil stands for one that is not there.
func RecordHappened(before, after *corev1.ConfigMap) (Happening, bool) {
	switch {
	case !saves(after):
		if !saves(before) { // it was forgotten before
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

// NodeHappened returns what the change of a Node shows; nil stands for one that is not there.
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

// saves reports whether a ConfigMap, nil if there is none, is a record, readable or not. A floor
// saves nothing.
func saves(cm *corev1.ConfigMap) bool { return cm != nil && ParseSaved(cm).Floor.Object == nil }

func happened(what, node, format string, args ...any) Happening {
	return Happening{What: what, Node: node, Text: fmt.Sprintf(format, args...)}
}
