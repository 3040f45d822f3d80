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

// setAside withholds labels that the API server has refused to set, so that the others can be
// restored. It returns the refusal if it is not about the labels, or if nodekeeper's own policies
// refuse them: all of them come back once the installation is right.
func (a *Applier) setAside(ctx context.Context, t txn.Transaction, wanted map[string]string, k *known, refusal *RefusedError) error {
	if nodes.RefusedToNodekeeper(refusal.Err) {
		return refusal
	}
	keys, err := a.refused(ctx, wanted, k)
	if err != nil {
		return err
	}
	if keys == "" {
		return refusal
	}
	next, done := preserve.SetAside(*k.stored.Record, preserve.NodeOf(k.node), keys, a.Policy)
	if !done {
		return refusal
	}
	switch err := a.save(ctx, next, k); {
	case errors.Is(err, records.ErrTooLarge):
		return refusal // the record must not grow for it, and the transaction is still owed
	case err != nil:
		return err
	}
	for key := range keys.All() {
		a.Observer.Refused(ctx, t, labels.Keys(key), refusal.Err)
	}
	return nil
}

// refused returns labels whose change the API server refuses: one if this is the first refusal on the
// Node, since there are seldom more, and otherwise all. It returns none if the API server refuses the
// restore even without any change of a label.
func (a *Applier) refused(ctx context.Context, wanted map[string]string, k *known) (labels.Keys, error) {
	has, _ := labels.Split(k.node.Labels)
	gets, _ := labels.Split(wanted)
	changed := labels.Differing(has, gets)
	if len(changed) == 0 {
		return "", nil
	}
	isRefused := func(accepted, more []string) (bool, error) {
		err := a.Nodes.TryRelabel(ctx, k.node, withOnly(wanted, k.node.Labels, changed, slices.Concat(accepted, more)), k.readAt)
		if err != nil && !nodes.Refused(err) {
			return false, err
		}
		return err != nil, nil
	}
	// A restore that is refused whatever its labels is tried again and again, so find that out first.
	if is, err := isRefused(nil, nil); err != nil || is {
		return "", err
	}
	if preserve.HasRefused(*k.stored.Record, k.node.UID) {
		return allRefused(changed, isRefused)
	}
	first, err := firstRefused(nil, changed, isRefused)
	if err != nil {
		return "", err
	}
	if first == len(changed)-1 { // nothing shows that it is refused in a dry run, too
		if is, err := isRefused(nil, changed); err != nil || !is {
			return "", err
		}
	}
	return labels.Keys(changed[first]), nil
}

// tryFunc reports whether the API server refuses the changes of the accepted labels and of more.
type tryFunc func(accepted, more []string) (bool, error)

// firstRefused returns the index of the first label that is refused after the accepted ones and those
// before it, of labels that are not all accepted. It takes one dry run for each halving.
func firstRefused(accepted, keys []string, isRefused tryFunc) (int, error) {
	first := 0
	for end := len(keys) - 1; first < end; {
		middle := (first + end) / 2
		is, err := isRefused(accepted, keys[:middle+1])
		switch {
		case err != nil:
			return 0, err
		case is:
			end = middle
		default:
			first = middle + 1
		}
	}
	return first, nil
}

// allRefused returns all labels that are refused. From each one that it finds it tries one label, then
// two, four and so on, until another one is among them. So it takes few dry runs where few labels are
// refused, and hardly more than one for each label where all are. If a dry run fails, for example
// because the Node has changed, it returns those that it has found, so that the next search is shorter.
func allRefused(keys []string, isRefused tryFunc) (labels.Keys, error) {
	var accepted, refused []string
	for count := 1; len(keys) > 0; {
		some := keys[:min(count, len(keys))]
		is, err := isRefused(accepted, some)
		if err == nil && !is {
			accepted, keys, count = append(accepted, some...), keys[len(some):], 2*count
			continue
		}
		var first int
		if err == nil {
			first, err = firstRefused(accepted, some, isRefused)
		}
		switch {
		case err != nil && len(refused) == 0:
			return "", err
		case err != nil:
			return labels.KeysOf(slices.Values(refused)), nil //nolint:nilerr // see above
		}
		refused = append(refused, some[first])
		accepted, keys, count = append(accepted, some[:first]...), keys[first+1:], 1
	}
	return labels.KeysOf(slices.Values(refused)), nil
}

// withOnly returns the wanted labels, except that of the changed ones only some are changed.
func withOnly(wanted, are map[string]string, changed, some []string) map[string]string {
	left := maps.Clone(wanted)
	set := func(keys []string, from map[string]string) {
		for _, key := range keys {
			if value, isThere := from[key]; isThere {
				left[key] = value
			} else {
				delete(left, key)
			}
		}
	}
	set(changed, are)
	set(some, wanted)
	return left
}

// asRefused returns the refusal in an error, or nil.
func asRefused(err error) *RefusedError {
	refusal, _ := errors.AsType[*RefusedError](err)
	return refusal
}
