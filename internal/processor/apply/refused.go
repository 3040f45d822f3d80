package apply

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sort"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// setAside withholds the label that the API server has refused to set, so that the others can be
// restored. It returns the refusal if it is not about one of the labels.
func (a *Applier) setAside(ctx context.Context, t txn.Transaction, wanted map[string]string, k *known, refusal *RefusedError) error {
	key, err := a.refused(ctx, wanted, k)
	if err != nil {
		return err
	}
	next, done := preserve.SetAside(*k.stored.Record, preserve.NodeOf(k.node), labels.Keys(key), a.Policy)
	if key == "" || !done {
		return refusal
	}
	if err := a.save(ctx, next, k); err != nil {
		return err
	}
	a.Observer.Refused(ctx, t, labels.Keys(key), refusal.Err)
	return nil
}

// refused returns a label whose change the API server refuses, or "" if it refuses the restore even
// without any change of a label. It takes one dry run for each time that the number of changed
// labels can be halved, and at most one more.
func (a *Applier) refused(ctx context.Context, wanted map[string]string, k *known) (string, error) {
	changed := slices.Sorted(maps.Keys(labels.ChangesBetween(k.node.Labels, wanted).Labels))
	changed = slices.DeleteFunc(changed, func(key string) bool { return key == labels.Marker })
	var failed error
	// A restore with the first labels only is refused from the number on that includes the culprit.
	isRefused := func(count int) bool {
		if failed != nil {
			return true
		}
		err := a.Nodes.TryRelabel(ctx, k.node, withOnly(wanted, k.node.Labels, changed[count:]), k.readAt)
		if err != nil && !nodes.Refused(err) {
			failed = err
		}
		return err != nil
	}
	last := len(changed) - 1
	culprit := sort.Search(last+1, func(i int) bool { return i == last || isRefused(i+1) })
	switch {
	case culprit > last, culprit == 0 && isRefused(0):
		return "", failed
	case culprit == last && !isRefused(last+1): // dry runs are not refused
		return "", failed
	case failed != nil:
		return "", failed
	}
	return changed[culprit], nil
}

// withOnly returns the wanted labels, except that those with the keys stay as they are.
func withOnly(wanted, are map[string]string, unchanged []string) map[string]string {
	wanted = maps.Clone(wanted)
	for _, key := range unchanged {
		if value, isThere := are[key]; isThere {
			wanted[key] = value
		} else {
			delete(wanted, key)
		}
	}
	return wanted
}

// asRefused returns the refusal in an error, or nil.
func asRefused(err error) *RefusedError {
	refusal, _ := errors.AsType[*RefusedError](err)
	return refusal
}
