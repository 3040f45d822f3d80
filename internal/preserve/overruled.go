package preserve

import (
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/txn"
)

// whose returns the later of two states of an incarnation, with what both say of whose the labels
// are. Between the two, agents have withdrawn some labels. What was overruled before stays so until
// agents set or withdraw it again.
//
// Where the later state does not say who had set a label, what was known before still holds while
// the value stays: the API server forgets the oldest field managers if there are more than ten. And
// what was unclear stays so until agents set it, or it has another value: a restore may have made
// it its own. A label of the machine is overruled if it is not the machine's in the later state,
// and agents have not withdrawn it.
func whose(before, after labels.Side, withdrawn labels.Keys) labels.Side {
	unclear := after.Unclear.Set()
	isUnclear := func(key string) bool { return unclear[key] }
	machine := after.Machine.Union(before.Machine.Where(isUnclear).Same(before.Labels, after.Labels))
	wasUnclear := before.Unclear.Set()
	stillUnclear := after.Unclear.Where(func(key string) bool {
		_, wasThere := before.Labels[key]
		return !wasThere || wasUnclear[key]
	})
	return labels.Side{
		Labels:    after.Labels,
		Machine:   machine,
		Unclear:   stillUnclear.Union(before.Unclear.Same(before.Labels, after.Labels)).Without(machine),
		Overruled: before.Overruled.Union(before.Machine).Without(withdrawn).Union(after.Overruled).Without(machine),
	}
}

// Merged returns a transaction as it is stored if it supersedes the one before it, of the same
// incarnation: with what both say of whose the labels are.
func Merged(superseded, t txn.Transaction) txn.Transaction {
	known := whose(sideOf(superseded), sideOf(t), t.Withdrawn)
	t.Machine, t.Unclear, t.Overruled = known.Machine, known.Unclear, known.Overruled
	t.AtOnce = t.AtOnce || superseded.AtOnce
	t.Withdrawn = superseded.Withdrawn.Union(t.Withdrawn).Without(known.Machine)
	return t
}
