package preserve

import (
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// mergeOwnership returns the later of two states of an incarnation with the ownership from both.
// Between the two, agents have withdrawn some labels. Overruled keys stay overruled until agents
// set or withdraw them again.
//
// If the later state does not identify a label's setter, the earlier one still applies while the
// value is the same, because the API server drops the oldest field managers when there are more
// than ten. Unclear keys stay unclear until agents set them or the value changes: a restore may
// have become their field manager. A key that is both the machine's and unclear was the machine's
// in an earlier state, see [Merged], so it stays overruled if it is known to be. A taint becomes
// unclear as soon as anyone but an agent writes the list. A label of the machine becomes overruled
// if it is not the machine's in the later state and agents have not withdrawn it.
func mergeOwnership(before, after labels.Side, withdrawn labels.Keys) labels.Side {
	unclear, overruled := after.Unclear.Set(), before.Overruled.Set()
	isUnclear := func(key string) bool { return unclear[key] }
	machine := after.Machine.Where(func(key string) bool { return !unclear[key] || !overruled[key] })
	machine = machine.Union(before.Machine.Where(isUnclear).Same(before.Labels, after.Labels))
	wasUnclear := before.Unclear.Set()
	stillUnclear := after.Unclear.Where(func(key string) bool {
		_, wasThere := before.Labels[key]
		return !wasThere || wasUnclear[key] || labels.IsTaint(key)
	})
	// A missing taint or annotation does not prove a removal: a watcher without the flag does not
	// see them. A taint that is no longer the machine's does not prove a change by a user: other
	// programs write the list, too. A watcher that saw the removal or the change names the key in
	// after.Overruled.
	wasMachines := before.Machine.Where(func(key string) bool {
		_, isThere := after.Labels[key]
		return labels.IsLabel(key) || isThere && !labels.IsTaint(key)
	})
	return labels.Side{
		Labels:    after.Labels,
		Machine:   machine,
		Unclear:   stillUnclear.Union(before.Unclear.Same(before.Labels, after.Labels)).Without(machine),
		Overruled: before.Overruled.Union(wasMachines).Without(withdrawn).Union(after.Overruled).Without(machine),
	}
}

// removedPreserved returns the keys of annotations and taints that were removed from an incarnation
// since its record was written, except those that agents may have withdrawn. It returns none unless
// a processor read the Node itself: in a watcher's transaction a missing key proves nothing, see
// [mergeOwnership].
func removedPreserved(t txn.Transaction, r record.Record, policy labels.Policy) labels.Keys {
	if !t.ByProcessor || policy.Preserves == nil || !isSourceOrRestored(r, t.UID) {
		return ""
	}
	return r.Machine.Union(r.Unclear.Taints()).Where(policy.Preserves).Missing(t.Labels).Without(t.Withdrawn)
}

// Merged returns t as stored when it supersedes the previous transaction of the same incarnation:
// with the ownership from both. Keys that only the earlier one attributes to the machine become
// unclear as well, because this watcher may have missed an event in between that others have seen.
func Merged(superseded, t txn.Transaction) txn.Transaction {
	merged := mergeOwnership(sideOf(superseded), sideOf(t), t.Withdrawn)
	wasUnclear := t.Unclear.Set()
	t.Unclear = merged.Unclear.Union(merged.Machine.Where(func(key string) bool { return wasUnclear[key] }))
	t.Machine, t.Overruled = merged.Machine, merged.Overruled
	t.AtOnce = t.AtOnce || superseded.AtOnce
	t.Withdrawn = superseded.Withdrawn.Union(t.Withdrawn).Without(merged.Machine)
	return t
}
