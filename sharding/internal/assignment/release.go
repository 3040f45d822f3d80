package assignment

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// followUp moves the children of an object after the object itself, if the shard has released it by
// removing both labels. Until then the next shard can see the object without its children: protocol
// 1 has no step between release and assignment.
func (t *tracker) followUp(ctx context.Context, key types.NamespacedName) error {
	g := t.known(key).released
	if g.shard == "" {
		return nil
	}
	m, err := t.api.get(ctx, key)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	switch {
	case err != nil || m.UID != g.uid || m.Labels[t.keys.shard] == g.shard || !t.of.current().selects(t.mapping, m):
		t.forgetRelease(key, g.shard) // the object is gone or has left the ring, or the drain was canceled
	case m.Labels[t.keys.shard] == "":
		t.queue.AddAfter(key, retryPeriod)
	default:
		t.of.children.add(move{of: t, main: m, to: m.Labels[t.keys.shard], after: g.shard})
	}
	return nil
}

// forgetRelease discards the release of an object by a shard. A later release by another shard is
// kept.
func (t *tracker) forgetRelease(key types.NamespacedName, shard string) {
	t.change(key, func(o object) object {
		if o.released.shard == shard {
			o.released = release{}
		}
		return o
	})
}
