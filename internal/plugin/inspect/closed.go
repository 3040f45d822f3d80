package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/pages"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// fewTainted bounds the Nodes that are read one by one for their taints. For more, a list of all
// costs less.
const fewTainted = 16

// Closed is a Node that has the startup taint, and not the marker for which processors look.
type Closed struct {
	Name string
	// Since is when taints of the Node were last set, or later.
	Since metav1.Time
}

// ClosedWithoutMarker returns the nodes of a survey that have the startup taint and not its marker,
// by name. It reads each Node that has taints, because metadata does not contain them.
func (c *Cluster) ClosedWithoutMarker(ctx context.Context, s *Survey) ([]Closed, error) {
	tainted := map[string]types.UID{}
	for name, n := range s.live {
		if n.isTainted && n.isMatched {
			tainted[name] = n.live.uid
		}
	}
	var closed []Closed
	check := func(n *corev1.Node) error {
		since := nodeview.TaintsSetAt(n.ManagedFields) // of the Node that has the taint now
		isClosed := n.Labels[labels.Marker] != labels.Pending && slices.ContainsFunc(n.Spec.Taints, nodeview.IsStartupTaint)
		if tainted[n.Name] == n.UID && since != nil && isClosed {
			closed = append(closed, Closed{n.Name, *since})
		}
		return nil
	}
	var err error
	if len(tainted) > fewTainted {
		err = pages.Each(ctx, c.Client, func() client.ObjectList { return &corev1.NodeList{} }, "", check)
	} else {
		err = c.eachNamed(ctx, tainted, check)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the taints of nodes: %w", err)
	}
	slices.SortFunc(closed, func(a, b Closed) int { return cmp.Compare(a.Name, b.Name) })
	return closed, nil
}

// eachNamed calls do with the Nodes of these names. It needs no permissions except list.
func (c *Cluster) eachNamed(ctx context.Context, names map[string]types.UID, do func(*corev1.Node) error) error {
	for name := range names {
		list := &corev1.NodeList{}
		if err := c.Client.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
			return err //nolint:wrapcheck // the caller adds the context
		}
		for i := range list.Items {
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
