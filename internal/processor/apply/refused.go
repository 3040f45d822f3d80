package apply

import (
	"context"
	"errors"
	"maps"
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/txn"
)

// setAside withholds the label that the API server has refused to set, so that the others can be
// restored. It returns the refusal if it is not about one of the labels.
func (a *Applier) setAside(ctx context.Context, t txn.Transaction, wanted map[string]string, k *known, refusal *RefusedError) error {
	key, err := a.refused(ctx, wanted, k)
	if err != nil {
		return err
	}
	if key == "" {
		return refusal
	}
	next, done := preserve.SetAside(*k.stored.Record, preserve.NodeOf(k.node), labels.Keys(key), a.Policy)
	if !done {
		return refusal
	}
	switch err := a.save(ctx, next, k); {
	case errors.Is(err, records.ErrTooLarge):
		return refusal // the record must not grow for it, and the transaction is still owed
	case err != nil:
		return err
	}
	a.Observer.Refused(ctx, t, labels.Keys(key), refusal.Err)
	return nil
}

// refused returns a label whose change the API server refuses, or "" if it refuses the restore even
// without any change of a label. It takes one dry run for each halving of the changed labels, and at
// most two more.
func (a *Applier) refused(ctx context.Context, wanted map[string]string, k *known) (string, error) {
	changed := slices.Sorted(maps.Keys(labels.ChangesBetween(k.node.Labels, wanted).Labels))
	changed = slices.DeleteFunc(changed, func(key string) bool { return key == labels.Marker })
	if len(changed) == 0 {
		return "", nil
	}
	// isRefused reports whether a restore of only the first count changed labels is refused.
	isRefused := func(count int) (bool, error) {
		err := a.Nodes.TryRelabel(ctx, k.node, withOnly(wanted, k.node.Labels, changed[count:]), k.readAt)
		if err != nil && !nodes.Refused(err) {
			return false, err
		}
		return err != nil, nil
	}
	// A restore that is refused whatever its labels is tried again and again, so find that out first.
	if is, err := isRefused(0); err != nil || is {
		return "", err
	}
	culprit, last := 0, len(changed)-1
	for end := last; culprit < end; {
		middle := (culprit + end) / 2
		is, err := isRefused(middle + 1)
		switch {
		case err != nil:
			return "", err
		case is:
			end = middle
		default:
			culprit = middle + 1
		}
	}
	if culprit == last { // nothing shows that it is refused in a dry run, too
		if is, err := isRefused(len(changed)); err != nil || !is {
			return "", err
		}
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
