package apply

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview/owners"
	"nodekeeper.dev/internal/txn"
)

// giveBack gives the labels that restores have set on the known Node back to their owners in the known
// record, once that is known to follow the Node. Until then the labels must stay nodekeeper's: if the
// restore must be repeated with later labels, they must not look like edits. If giving back is
// refused, or the Node keeps changing, the labels stay nodekeeper's, since later transactions must not
// wait for that.
func (a *Applier) giveBack(ctx context.Context, t txn.Transaction, k *known) error {
	r, n := k.stored.Record, k.node
	if r == nil || n == nil || !k.current || n.UID != r.Source && n.UID != r.Restored.UID {
		return nil
	}
	err := a.Nodes.GiveBack(ctx, n, r.Owners)
	switch {
	case errors.Is(err, nodes.ErrStale):
		a.Observer.Conflicted(err)
		return nil
	// A webhook that cannot be called is an internal error.
	case nodes.Refused(err), apierrors.IsInternalError(err), errors.Is(err, owners.ErrUnreadable):
		a.Observer.NotGivenBack(ctx, t, err)
		return nil
	}
	return err
}
