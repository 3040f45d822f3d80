package preserve

import (
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// whose returns the later of two states of an incarnation, with what both say of whose the labels
// are. Between the two, agents have withdrawn some labels. What was overruled before stays so until
// agents set or withdraw it again.
//
// Where the later state does not say who had set a label, what was known before still holds while
// the value stays: the API server forgets the oldest field managers if there are more than ten. And
// what was unclear stays so until agents set it, or it has another value: a restore may have made
// it its own. A key that is the machine's and unclear was the machine's in an earlier state, see
// [Merged]: what is known to be overruled stays so. A taint becomes unclear as soon as anyone but an
// agent writes the list. A label of the machine is overruled if it is not the machine's in the later
// state, and agents have not withdrawn it.
func whose(before, after labels.Side, withdrawn labels.Keys) labels.Side {
	unclear, overruled := after.Unclear.Set(), before.Overruled.Set()
	isUnclear := func(key string) bool { return unclear[key] }
	machine := after.Machine.Where(func(key string) bool { return !unclear[key] || !overruled[key] })
	machine = machine.Union(before.Machine.Where(isUnclear).Same(before.Labels, after.Labels))
	wasUnclear := before.Unclear.Set()
	stillUnclear := after.Unclear.Where(func(key string) bool {
		_, wasThere := before.Labels[key]
		return !wasThere || wasUnclear[key] || labels.IsTaint(key)
	})
	// An absent taint or annotation does not prove a removal: a watcher without the flag sees none.
	// A taint that is no longer the machine's does not prove a change by a person: others write the
	// list, too. A watcher that saw the removal or the change names the key in after.Overruled.
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

// removedPreserved returns the keys of the annotations and taints that somebody has removed from an
// incarnation since its record was written, but for those that agents may have withdrawn. It
// returns none unless a processor read the Node itself: in a transaction of a watcher, an absent key
// proves nothing, see [whose].
func removedPreserved(t txn.Transaction, r record.Record, policy labels.Policy) labels.Keys {
	if !t.ByProcessor || policy.Preserves == nil || !isSourceOrRestored(r, t.UID) {
		return ""
	}
	return r.Machine.Union(r.Unclear.Taints()).Where(policy.Preserves).Missing(t.Labels).Without(t.Withdrawn)
}

// Merged returns a transaction as it is stored if it supersedes the one before it, of the same
// incarnation: with what both say of whose the labels are. What is the machine's only by the earlier
// one is unclear as well: the watcher may have missed what came between, and others may not have.
func Merged(superseded, t txn.Transaction) txn.Transaction {
	known := whose(sideOf(superseded), sideOf(t), t.Withdrawn)
	wasUnclear := t.Unclear.Set()
	t.Unclear = known.Unclear.Union(known.Machine.Where(func(key string) bool { return wasUnclear[key] }))
	t.Machine, t.Overruled = known.Machine, known.Overruled
	t.AtOnce = t.AtOnce || superseded.AtOnce
	t.Withdrawn = superseded.Withdrawn.Union(t.Withdrawn).Without(known.Machine)
	return t
}
