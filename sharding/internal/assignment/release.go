package assignment

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// given is an object whose shard has given it away.
type given struct {
	uid types.UID
	// by is the shard that had it.
	by string
}

// followUp moves the children of an object after it, if its shard has given it away by removing both of its
// labels. The next shard can see the object without its children until then: protocol 1 has no step between
// the two.
func (t *tracker) followUp(ctx context.Context, key types.NamespacedName) error {
	t.mu.Lock()
	g, isGiven := t.given[key]
	t.mu.Unlock()
	if !isGiven {
		return nil
	}
	m, err := t.get(ctx, key)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	switch {
	case err != nil || m.UID != g.uid || m.Labels[t.keys.shard] == g.by:
		t.forgetGiven(key, g.by) // it is gone, or the drain was withdrawn
	case m.Labels[t.keys.shard] == "":
		t.queue.AddAfter(key, retryPeriod)
	default:
		t.of.children.add(move{of: t, main: m, from: g.by, to: m.Labels[t.keys.shard], isAfter: true})
	}
	return nil
}

func (t *tracker) isGiven(key types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, isGiven := t.given[key]
	return isGiven
}

// forgetGiven forgets that a shard has given an object away. Another one may have done so since.
func (t *tracker) forgetGiven(key types.NamespacedName, by string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.given[key].by == by {
		delete(t.given, key)
	}
}
