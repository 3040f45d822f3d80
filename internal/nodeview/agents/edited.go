package agents

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
)

// processors is the field manager of restores by processors.
const processors = fieldmanagers.Processor

// editedIn returns the keys of [Ownership].Edited, given the index of the webhook's entry.
func editedIn(entries []entry, webhook int, n *metav1.ObjectMeta) map[string]bool {
	edited := map[string]bool{}
	last := lastOfCreation(entries, n.CreationTimestamp)
	for i, e := range entries {
		isKubelets := e.isAgents || e.isUnnamed && registers(e.keys)
		if e.isUnknown || isKubelets || i == webhook || len(e.keys) == 0 || !isEdit(entries, i, n.CreationTimestamp, last) {
			continue
		}
		isRestore := e.Manager == processors
		for key := range e.keys {
			if isRestore == (key == labels.Marker) && key != AllTaints {
				edited[key] = true
			}
		}
	}
	isWebhooks := webhook >= 0 && entries[webhook].keys[labels.Marker]
	if (isWebhooks || isSetterUnknown(entries, labels.Marker)) && n.Labels[labels.Marker] != labels.Pending {
		edited[labels.Marker] = true
	}
	return edited
}

// isSetterUnknown reports whether the API server no longer records who set a label: of more than ten
// field managers it merges the oldest, see [unknownSetters], and anyone may reset managedFields.
func isSetterUnknown(entries []entry, key string) bool {
	return !slices.ContainsFunc(entries, func(e entry) bool { return !e.isUnknown && e.keys[key] })
}

// lastOfCreation returns the last second whose entries may be of the request to create a Node. If a
// kubelet registered it in the second of its creation, no one else has created it. Other agents
// prove nothing: kube-controller-manager annotates every Node within milliseconds.
func lastOfCreation(entries []entry, created metav1.Time) time.Time {
	for _, e := range entries {
		if e.isAgents && e.Subresource == "" && e.Time != nil && e.Time.Equal(&created) && registers(e.keys) {
			return created.Add(-time.Second)
		}
	}
	return created.Time
}

// isEdit reports whether an entry, of neither an agent nor the webhook, was written after the
// creation of a Node. A processor can write to the Node from the second of its creation on; an
// earlier entry was copied from another Node. The entry of the creator has its last time, too, so
// another one must show that it is not the creator's.
func isEdit(entries []entry, at int, created metav1.Time, lastOfCreation time.Time) bool {
	e := entries[at]
	switch {
	case e.Time == nil:
		return false
	case e.Manager == processors:
		return !e.Time.Before(&created)
	case !e.Time.After(lastOfCreation):
		return false
	}
	for i, other := range entries {
		if i != at && other.Subresource == "" && other.mayHaveCreated(created) {
			return true
		}
	}
	return false
}

// mayHaveCreated reports whether an entry may be that of the creator of a Node: it has not written
// since, or it is the kubelet.
func (e entry) mayHaveCreated(created metav1.Time) bool {
	isFirst := e.Time != nil && e.Time.Equal(&created) && e.Manager != processors && e.Manager != Webhook
	return isFirst || e.isAgents && registers(e.keys)
}
