package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
)

// maxGiveBack bounds the attempts to give labels back. Each but the first costs a read.
const maxGiveBack = 3

// GiveBack gives the labels that restores have set on a Node back to their owners. It needs no request
// if there is nothing to give back. If others keep changing the Node, it returns [ErrStale].
//
// It is a write of its own: the API server makes the manager of a request the only owner of what the
// request changes, and takes that from the managers that the request names
// (Updater.update in sigs.k8s.io/structured-merge-diff/merge). The patch is conditional on the
// incarnation, on managedFields, which show every change of a label by others, and on the marker, which
// changes with another restore.
func (n *Nodes) GiveBack(ctx context.Context, read *nodeview.Node, to fieldmanagers.Owners) error {
	current := read
	for attempt := 1; ; attempt++ {
		entries, err := to.GiveBack(current.Managed, current.Labels, hasAllTaints(current))
		if err != nil {
			return fmt.Errorf("giving back the labels of node %q: %w", read.Name, err)
		}
		if entries == nil {
			return nil
		}
		p := jsonPatch{}
		p.test("/metadata/uid", current.UID)
		p.test("/metadata/labels/"+labels.Marker, current.MarkerValue())
		p.test("/metadata/managedFields", current.Managed)
		p.add("/metadata/managedFields", entries)
		if err = n.patch(ctx, Metadata(read.Name), p); err == nil {
			return nil
		}
		if err = staleOr(err); !errors.Is(err, ErrStale) || attempt == maxGiveBack {
			return err
		}
		if current, err = n.Get(ctx, read.Name); err != nil {
			return err
		}
		if current == nil || current.UID != read.UID || current.Marker != read.Marker {
			return nil // it is gone, or was restored from another record
		}
	}
}

// hasAllTaints reports whether the view of a Node includes all of its taints.
func hasAllTaints(n *nodeview.Node) bool {
	return !slices.ContainsFunc(n.Taints, func(taint corev1.Taint) bool {
		_, isSeen := n.Labels[labels.TaintKey(taint.Key, string(taint.Effect))]
		return !isSeen
	})
}
