package preserve

import (
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Step is one write of a plan, or the conclusion that there is nothing to write.
type Step struct {
	// Decision is what to write: the last of Decisions that writes anything.
	Decision
	// Decisions are those about the transactions that this step settles, in their order, and those
	// after which the next decision is about the same transaction again. Every save among them but the
	// last is superseded: it is never written.
	Decisions []Decision
}

// Settles returns how many transactions have had their effect once this step is done and those
// before it are.
func (s Step) Settles() int {
	count := 0
	for _, d := range s.Decisions {
		if !d.Again {
			count++
		}
	}
	return count
}

// maxAgain bounds how often a plan decides about one transaction. Withheld labels take three times. A
// fault that made it more must not keep a processor busy for ever.
const maxAgain = 8

// Plan returns the writes that have the effect of applying [Decide] to the transactions of a node
// one by one, in their order: what is saved is collapsed into one write, up to a restore. The
// record is nil if there is none, and the Node is nil if there is none; the result is right as long
// as these are current.
//
// The result of a restore is unknown until it is done: the API server chooses the revision, and
// admission plugins may change labels. A plan assumes the labels that were requested, and a
// revision that is not before that of any transaction, since all of them were recorded earlier.
// After a restore, execute another plan for the transactions that are left.
func Plan(queue []txn.Transaction, r *record.Record, n *Node, policy labels.Policy) []Step {
	return PlanBy(func(t txn.Transaction, r *record.Record, n *Node) Decision { return Decide(t, r, n, policy) }, queue, r, n)
}

// PlanBy is Plan by another decision, for tests that break a rule on purpose.
func PlanBy(decide func(txn.Transaction, *record.Record, *Node) Decision, queue []txn.Transaction, r *record.Record, n *Node) []Step {
	var steps []Step
	for _, t := range queue {
		for again, count := true, 0; again; count++ {
			if count == maxAgain {
				return steps // what is left to decide about is decided after these steps
			}
			d := decide(t, r, n)
			switch d.Action {
			case Nothing:
			case Save:
				r = new(d.Record)
			case Restore:
				left := restored(queue, n, d)
				r, n = new(Noted(*r, *n, *left)), left
			case Open:
				n = opened(queue, n)
			}
			steps, again = extend(steps, d), d.Again
		}
	}
	return steps
}

// extend adds a decision to the last step if the two need one write or none, and begins another
// step otherwise.
func extend(steps []Step, d Decision) []Step {
	if len(steps) == 0 {
		return append(steps, Step{Decision: d, Decisions: []Decision{d}})
	}
	last := &steps[len(steps)-1]
	if last.WritesNode() || d.WritesNode() {
		return append(steps, Step{Decision: d, Decisions: []Decision{d}})
	}
	if d.Action == Save {
		last.Decision = d // a write that succeeds confirms what was read, and so the decisions before it
	}
	last.Decisions = append(last.Decisions, d)
	return steps
}

// WritesNode reports whether a decision writes to the Node, which makes it a step of its own.
func (d Decision) WritesNode() bool { return d.Action == Restore || d.Action == Open }

// opened returns the Node as it is assumed to be left without the startup taint.
func opened(queue []txn.Transaction, n *Node) *Node {
	left := *n
	left.Marker, left.Gated = "", false
	for _, t := range queue {
		left.Revision = revision.Max(left.Revision, t.Revision)
	}
	return &left
}

// restored returns the Node as a restore is assumed to leave it.
func restored(queue []txn.Transaction, n *Node, d Decision) *Node {
	latest := n.Revision
	for _, t := range queue {
		latest = revision.Max(latest, t.Revision)
	}
	return &Node{
		UID: n.UID, Revision: latest, Labels: d.Labels, Machine: n.Machine.Same(n.Labels, d.Labels), Unclear: n.Unclear.Same(n.Labels, d.Labels), Marker: d.Marker,
		Identity: n.Identity, IdentityRead: n.IdentityRead, Unselected: n.Unselected,
	}
}

// ComesGated reports whether a transaction is of a Node whose gate was closed when it was recorded.
func ComesGated(t txn.Transaction) bool { return t.Type == txn.Added && t.Marker == labels.Pending }

// NeedsNode reports whether a plan for these transactions may depend on the Node.
func NeedsNode(queue []txn.Transaction, r *record.Record) bool {
	if NeedsIdentity(queue, r) || slices.ContainsFunc(queue, ComesGated) {
		return true
	}
	first := slices.IndexFunc(queue, func(t txn.Transaction) bool { return t.Type == txn.Added })
	// The first transaction of a node without a record cannot be a restore, but it may make one of
	// the next.
	return first > 0 || first == 0 && (r != nil || slices.ContainsFunc(queue[1:], func(t txn.Transaction) bool { return t.Type == txn.Added }))
}
