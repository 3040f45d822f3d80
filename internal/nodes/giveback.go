package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/owners"
)

// maxGiveBack bounds the attempts to give labels back. Each but the first costs a read.
const maxGiveBack = 3

// GiveBack gives the labels that restores have set on a Node back to their owners, and returns the
// resulting Node, with the identity that was read. It returns the Node that was read if there is
// nothing to give back, or if others had changed the Node in between. It returns [ErrStale] if they
// keep changing it.
//
// It is a write of its own: the API server makes the manager of a request the only owner of what the
// request changes, and takes that from the managers that the request names
// (Updater.update in sigs.k8s.io/structured-merge-diff/merge). The patch is conditional on the
// incarnation and on the fields of each manager that it changes, but not on the revision, so the
// status of the Node may change at the same time.
func (n *Nodes) GiveBack(ctx context.Context, read *metav1.PartialObjectMetadata, to owners.Owners) (*metav1.PartialObjectMetadata, error) {
	current := read
	for attempt := 1; ; attempt++ {
		changes, err := to.GiveBack(current, hasAllTaints(current))
		if err != nil {
			return nil, fmt.Errorf("giving back the labels of node %q: %w", read.Name, err)
		}
		if len(changes) == 0 {
			return read, nil
		}
		node, err := n.patch(ctx, read.Name, givenBack(current, changes))
		if err == nil {
			return unlessEdited(node, read), nil
		}
		if err = staleOr(err); !errors.Is(err, ErrStale) || attempt == maxGiveBack {
			return nil, err
		}
		if current, err = n.Get(ctx, read.Name); err != nil {
			return nil, err
		}
		if current == nil || current.UID != read.UID {
			return read, nil // it is gone
		}
	}
}

// unlessEdited returns the later of two states of a Node, with the identity that was read, or the
// former one if the labels differ.
func unlessEdited(later, read *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	if !maps.Equal(later.Labels, read.Labels) {
		return read
	}
	noteAs(later, read)
	return later
}

// hasAllTaints reports whether the view of a Node includes all of its taints.
func hasAllTaints(n *metav1.PartialObjectMetadata) bool {
	taints, isRead := nodeview.Taints(n)
	return isRead && !slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		_, isSeen := n.Labels[labels.TaintKey(taint.Key, string(taint.Effect))]
		return !isSeen
	})
}

// givenBack returns a JSON patch with changes of the managedFields of a Node. It is conditional on
// the incarnation and on the entries that change.
func givenBack(n *metav1.PartialObjectMetadata, changes []owners.Change) jsonPatch {
	p := jsonPatch{}
	p.test("/metadata/uid", n.UID)
	for _, change := range changes {
		if change.At < 0 {
			p.add("/metadata/managedFields/-", change.Entry)
			continue
		}
		before, path := n.ManagedFields[change.At], fmt.Sprintf("/metadata/managedFields/%d", change.At)
		p.test(path+"/manager", before.Manager)
		p.test(path+"/operation", before.Operation)
		p.test(path+"/fieldsV1", before.FieldsV1)
		p.add(path+"/fieldsV1", change.Entry.FieldsV1)
	}
	return p
}
