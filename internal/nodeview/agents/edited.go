package agents

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
)

// processors is the field manager of restores by processors.
const processors = "nodekeeper-processor"

// editedAnnotation holds the keys of [Edited] in memory.
const editedAnnotation = "nodekeeper.dev/edited-labels"

// Edited returns the keys of the labels and annotations of a stamped Node that users have set since
// it was created, as far as managedFields show that: they have the last time of each manager, in
// whole seconds. If a processor or the webhook has restored labels onto this incarnation, the marker
// is among the keys. A marker in the request to create the Node is not.
func Edited(n *metav1.PartialObjectMetadata) labels.Keys {
	return labels.Keys(n.Annotations[editedAnnotation])
}

// NoteEdited is like [Managers.Stamp] for [Edited], for callers that know the keys without
// managedFields.
func NoteEdited(n *metav1.PartialObjectMetadata, keys labels.Keys) { note(n, editedAnnotation, keys) }

// lastOfCreation returns the last second whose entries may be of the request to create a Node. If a
// kubelet registered it in the second of its creation, no one else has created it. Other agents
// prove nothing: kube-controller-manager annotates every Node within milliseconds.
func (m Managers) lastOfCreation(n *metav1.PartialObjectMetadata) time.Time {
	created := n.CreationTimestamp.Time
	for _, entry := range n.ManagedFields {
		if entry.Subresource != "" || entry.Time == nil || !entry.Time.Equal(&n.CreationTimestamp) || !m.match(entry.Manager) {
			continue
		}
		keys := map[string]bool{}
		if collect(entry, memberNames, keys) == nil && registers(keys) {
			return created.Add(-time.Second)
		}
	}
	return created
}

// isEdit reports whether an entry, of neither an agent nor the webhook, was written after the
// creation of a Node. A processor can write to the Node from the second of its creation on; an
// earlier entry was copied from another Node. The entry of the creator has its last time, too, so
// another one must show that it is not the creator's.
func (m Managers) isEdit(n *metav1.PartialObjectMetadata, at int, lastOfCreation time.Time) bool {
	entry := n.ManagedFields[at]
	switch {
	case entry.Time == nil:
		return false
	case entry.Manager == processors:
		return !entry.Time.Before(&n.CreationTimestamp)
	case !entry.Time.After(lastOfCreation):
		return false
	}
	for i, other := range n.ManagedFields {
		if i != at && other.Subresource == "" && m.mayHaveCreated(other, n.CreationTimestamp) {
			return true
		}
	}
	return false
}

// mayHaveCreated reports whether an entry may be that of the creator of a Node: it has not written
// since, or it is the kubelet.
func (m Managers) mayHaveCreated(entry metav1.ManagedFieldsEntry, created metav1.Time) bool {
	if entry.Time != nil && entry.Time.Equal(&created) && entry.Manager != processors && entry.Manager != Webhook {
		return true
	}
	keys := map[string]bool{}
	return m.match(entry.Manager) && collect(entry, memberNames, keys) == nil && registers(keys)
}

// collectEdited adds what an entry of neither an agent nor the webhook has set since the Node was
// created.
func (f *ownedFields) collectEdited(entry metav1.ManagedFieldsEntry, members []string) {
	isRestore := entry.Manager == processors
	set := map[string]bool{}
	if collect(entry, members, set) != nil {
		return // unreadable as a whole, see isReadable
	}
	for key := range set {
		if isRestore == (key == labels.Marker) && key != AllTaints {
			f.edit(key)
		}
	}
}

func (f *ownedFields) edit(key string) {
	if f.edited == nil {
		f.edited = map[string]bool{}
	}
	f.edited[key] = true
}
