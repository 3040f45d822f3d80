package apply

import (
	"context"
	"errors"
	"maps"
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/txn"
)

// setAside withholds labels that the API server has refused to set, so that the others can be
// restored. It returns the refusal if it is not about the labels. A missing right is not about the
// labels, even if it is missing only during some of the dry runs.
func (a *Applier) setAside(ctx context.Context, t txn.Transaction, wanted nodes.Wanted, v *view, refusal *RefusedError) error {
	if nodes.LacksRight(refusal) {
		return refusal
	}
	found, err := a.refused(ctx, wanted, v, refusal.Err)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return refusal
	}
	next, done := preserve.SetAside(*v.stored.Record, v.node, found.reasons(), a.Policy)
	if !done {
		return refusal
	}
	switch err := a.save(ctx, next, v); {
	case errors.Is(err, records.ErrTooLarge):
		return refusal // the record must not grow for it, and the transaction is still owed
	case err != nil:
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		a.Observer.Refused(ctx, t, labels.Keys(key), found[key])
	}
	return nil
}

// refusals are refused labels, and the answers of the API server that refuse them.
type refusals map[string]error

// reasons returns the messages of the answers as records have them.
func (r refusals) reasons() map[string]string {
	reasons := map[string]string{}
	for key, err := range r {
		message := err.Error()
		if answer, ok := nodes.StatusOf(err); ok && answer.Message != "" {
			message = answer.Message
		}
		reasons[key] = record.Refusal(message)
	}
	return reasons
}

// refused returns labels whose change the API server refuses: one if this is the first refusal on
// the Node, since there are seldom more, and otherwise all; those that the given refusal of all
// names, if that is enough. It returns none if the API server refuses the restore even without any
// change of a label, or if nodekeeper's own policies refuse a taint or an annotation: then a
// component is not installed, and all of them come back once it is.
func (a *Applier) refused(ctx context.Context, wanted nodes.Wanted, v *view, refusal error) (refusals, error) {
	changed := labels.Differing(v.node.Labels, wanted.Labels)
	if len(changed) == 0 {
		return nil, nil
	}
	try := func(accepted, more []string) (refusal, err error) {
		some := withOnly(wanted.Labels, v.node.Labels, changed, slices.Concat(accepted, more))
		err = a.Nodes.TryRelabel(ctx, v.node, nodes.Wanted{Labels: some, Marker: wanted.Marker}, v.readAt)
		if nodes.Refused(err) {
			return err, nil
		}
		return nil, err
	}
	s := search{try: try, keys: changed}
	if found, err := s.named(refusal); err != nil || len(found) > 0 {
		return found, err
	}
	// A restore that is refused whatever its labels is tried again and again, so find that out first.
	if refusal, err := try(nil, nil); err != nil || refusal != nil {
		return nil, err
	}
	if preserve.HasRefused(*v.stored.Record, v.node.UID) {
		return s.all()
	}
	first, refusal, err := s.first(changed, nil)
	if err == nil && refusal == nil { // nothing shows that the last one is refused in a dry run, too
		refusal, err = try(nil, changed)
	}
	if err != nil || refusal == nil || isOfComponent(changed[first], refusal) {
		return nil, err
	}
	return refusals{changed[first]: refusal}, nil
}

// isOfComponent reports whether nodekeeper's own policies refuse a key that only a component
// allows.
func isOfComponent(key string, refusal error) bool {
	return !labels.IsLabel(key) && nodes.RefusedToNodekeeper(refusal)
}

// search is a search for the labels that the API server refuses.
type search struct {
	// try returns the refusal of the changes of the accepted labels and of more, nil if there is
	// none.
	try  func(accepted, more []string) (refusal, err error)
	keys []string
	// accepted are the labels that were found not to be refused.
	accepted []string
}

// first returns the index of the first label that is refused after the accepted ones and those
// before it, of labels that are refused together with the given refusal, and its refusal. It takes
// one dry run for each halving.
func (s *search) first(keys []string, refusal error) (index int, itsRefusal, err error) {
	for end := len(keys) - 1; index < end; {
		middle := (index + end) / 2
		earlier, err := s.try(s.accepted, keys[:middle+1])
		switch {
		case err != nil:
			return 0, nil, err
		case earlier != nil:
			end, refusal = middle, earlier
		default:
			index = middle + 1
		}
	}
	return index, refusal, nil
}

// all returns all labels that are refused. After each one it tries one label, then two, four and so
// on, until another refused one is among them. So it takes few dry runs where few labels are
// refused, and hardly more than one for each label where all are. If a dry run fails, for example
// because the Node has changed, it returns those that it has found, so that the next search is
// shorter.
func (s *search) all() (refusals, error) {
	refused := refusals{}
	for count := 1; len(s.keys) > 0; {
		some := s.keys[:min(count, len(s.keys))]
		refusal, err := s.try(s.accepted, some)
		if err == nil && refusal == nil {
			s.accepted, s.keys, count = append(s.accepted, some...), s.keys[len(some):], 2*count
			continue
		}
		var first int
		if err == nil {
			first, refusal, err = s.first(some, refusal)
		}
		switch {
		case err != nil && len(refused) == 0, err == nil && isOfComponent(some[first], refusal):
			return nil, err
		case err != nil:
			return refused, nil //nolint:nilerr // see above
		}
		refused[some[first]] = refusal
		s.accepted, s.keys, count = append(s.accepted, some[:first]...), s.keys[first+1:], 1
	}
	return refused, nil
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
