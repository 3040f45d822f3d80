package preserve

import (
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// keyState is what a state of an incarnation reports of one key. The key of the machine's agents
// may be unclear as well: it was theirs in an earlier state, see [Merged]. Or it is copied, see
// [copies].
type keyState struct{ isThere, isMachines, isUnclear, isOverruled, isCopied bool }

// ownerOf determines who owns a key in the later of two states of an incarnation, given both,
// whether the value is the same in both, and whether agents have withdrawn the key in between. At
// most one of isMachines, isUnclear and isOverruled is true, except that an unclear key may be
// overruled.
//
//   - If the later state does not report who set a key, the earlier one still applies while the
//     value is the same, because the API server drops the oldest field managers when there are more
//     than ten. But if agents withdrew the machine's key in between, or a user overruled it, the
//     earlier owner does not apply to the value that came back: the key is unclear.
//   - An unclear key stays unclear until agents set it or its value changes: a restore may have
//     become its field manager. A taint becomes unclear as soon as anyone but an agent writes the
//     list.
//   - A label of the machine becomes overruled if it is not the machine's in the later state and
//     agents have not withdrawn it. A missing taint or annotation does not prove a removal: a
//     watcher without the flag does not see them. A taint that is no longer the machine's does not
//     prove a change by a user: other programs write the list, too. A watcher that saw the removal
//     or the change reports the key as overruled in the later state.
//   - An overruled key stays overruled until agents set or withdraw it again.
//   - A copied key stays the machine's while the value is the same, whoever owns it: no user has
//     chosen another value.
func ownerOf(key string, before, after keyState, isSame, isWithdrawn bool) (isMachines, isUnclear, isOverruled bool) {
	wasTheirs := before.isMachines && after.isUnclear && isSame
	isMachines = before.isCopied && isSame || after.isMachines && (!after.isUnclear || !before.isOverruled) ||
		wasTheirs && !after.isOverruled && !isWithdrawn
	stillUnclear := after.isUnclear && (!before.isThere || before.isUnclear || labels.IsTaint(key))
	isUnclear = (stillUnclear || before.isUnclear && isSame || wasTheirs) && !isMachines
	wasMachines := before.isMachines && (labels.IsLabel(key) || after.isThere && !labels.IsTaint(key))
	isOverruled = ((before.isOverruled || wasMachines) && !isWithdrawn || after.isOverruled) && !isMachines
	return isMachines, isUnclear, isOverruled
}

// mergeOwnership returns the later of two states of an incarnation with the owner of each key, see
// [ownerOf].
func mergeOwnership(before, after labels.Side, withdrawn labels.Keys) labels.Side {
	isWithdrawn := withdrawn.Set()
	was, is := keyStates(before), keyStates(after)
	var machine, unclear, overruled, copied []string
	add := func(key string) {
		former, wasThere := before.Labels[key]
		value, isThere := after.Labels[key]
		b, a := was[key], is[key]
		b.isThere, a.isThere = wasThere, isThere
		isMachines, isUnclear, isOverruled := ownerOf(key, b, a, wasThere && isThere && former == value, isWithdrawn[key])
		if isMachines {
			machine = append(machine, key)
		}
		if isMachines && b.isCopied && (!a.isMachines || a.isUnclear) {
			copied = append(copied, key)
		}
		if isUnclear {
			unclear = append(unclear, key)
		}
		if isOverruled {
			overruled = append(overruled, key)
		}
	}
	for key := range was {
		add(key)
	}
	for key := range is {
		if _, isDone := was[key]; !isDone {
			add(key)
		}
	}
	return labels.Side{
		Labels: after.Labels, Machine: labels.KeysOf(slices.Values(machine)),
		Unclear: labels.KeysOf(slices.Values(unclear)), Overruled: labels.KeysOf(slices.Values(overruled)),
		Copied: labels.KeysOf(slices.Values(copied)),
	}
}

// copies returns the keys of the former machine's labels that the next incarnation came with at the
// saved values, although its own agents have not set them: someone has created the Node from a copy
// of the former one, as with kubectl get -o yaml, and chosen none of these values. Restricted labels
// and taints are excluded.
func copies(r record.Record, came labels.Side) labels.Keys {
	same := Saved(r).Machine.Same(r.Labels, came.Labels).Without(came.Machine).Without(came.Unclear)
	return same.Where(func(key string) bool { return !labels.IsTaint(key) && !labels.Restricted(key) })
}

// keyStates returns the keys whose owner a state reports.
func keyStates(side labels.Side) map[string]keyState {
	states := map[string]keyState{}
	for key := range side.Machine.All() {
		states[key] = keyState{isMachines: true}
	}
	for key := range side.Unclear.All() {
		s := states[key]
		s.isUnclear = true
		states[key] = s
	}
	for key := range side.Overruled.All() {
		s := states[key]
		s.isOverruled = true
		states[key] = s
	}
	for key := range side.Copied.All() {
		s := states[key]
		s.isCopied = true
		states[key] = s
	}
	return states
}

// removedPreserved returns the keys of annotations and taints that were removed from an incarnation
// since its record was written, except those that agents withdrew and that have not come back since.
// It returns none unless a processor read the Node itself: in a watcher's transaction a missing key
// proves nothing, see [mergeOwnership].
func removedPreserved(t txn.Transaction, r record.Record, policy labels.Policy) labels.Keys {
	if !t.ByProcessor || policy.Preserves == nil || !isSourceOrRestored(r, t.UID) {
		return ""
	}
	theirs := r.Machine.Union(r.Unclear.Taints())
	for _, state := range statesOf(t) {
		theirs = theirs.Without(state.Withdrawn).Union(state.Machine).Union(state.Unclear.Taints())
	}
	return theirs.Where(policy.Preserves).Missing(t.Labels)
}

// Merged returns t as stored when it supersedes the previous transaction of the same incarnation:
// with the ownership and the edits from both. Keys that only the earlier one attributes to the
// machine become unclear as well, because this watcher may have missed an event in between that
// others have seen.
func Merged(superseded, t txn.Transaction) txn.Transaction {
	merged := mergeOwnership(sideOf(superseded), sideOf(t), t.Withdrawn)
	wasUnclear := t.Unclear.Set()
	t.Unclear = merged.Unclear.Union(merged.Machine.Where(func(key string) bool { return wasUnclear[key] }))
	t.Machine, t.Overruled = merged.Machine, merged.Overruled
	t.Edited = t.Edited.Union(superseded.Edited) // another process may have recorded the same end
	t.AtOnce = t.AtOnce || superseded.AtOnce
	t.Withdrawn = superseded.Withdrawn.Union(t.Withdrawn).Without(merged.Machine)
	t.Owners = t.Owners.After(superseded.Owners, []map[string]string{superseded.Labels}, []map[string]string{t.Labels})
	return t
}
