package apply

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// giveBack gives the labels that restores have set on the known Node back to their owners in the
// known record, once that is known to follow the Node. Until then the labels must stay nodekeeper's:
// if the restore must be repeated with later labels, they must not look like edits. If the API
// server answers with an error, or the Node keeps changing, the labels stay nodekeeper's, since
// later transactions must not wait for that. While the API server is overloaded or shutting down, or
// the credentials are not valid, they wait anyway, so an error is returned then. A timeout (504) is
// no reason to wait: a slow webhook may be its cause, and every attempt would hold up the saves for
// a minute.
func (a *Applier) giveBack(ctx context.Context, t txn.Transaction, v *view) error {
	r, n := v.stored.Record, v.node
	if r == nil || n == nil || !v.current || v.gaveBack || !preserve.Owned(*r, n.UID, "") {
		return nil
	}
	err := a.Nodes.GiveBack(ctx, n, r.Owners)
	_, isAnswer := nodes.StatusOf(err)
	switch {
	case errors.Is(err, nodes.ErrStale):
		a.Observer.Conflicted(err)
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsUnauthorized(err):
		return err
	case isAnswer, errors.Is(err, fieldmanagers.ErrUnreadable):
		a.Observer.NotGivenBack(ctx, t, err)
	case err != nil:
		return err
	}
	v.gaveBack = true
	return nil
}
