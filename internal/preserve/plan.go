package preserve

import (
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Step is one write of a plan, or the conclusion that there is nothing to write.
type Step struct {
	// Decision is the write: the last of Decisions that writes anything.
	Decision
	// Decisions are, in order, those about the transactions that this step settles, including those
	// that must be followed by another decision about the same transaction. Every save among them
	// except the last is superseded and never written.
	Decisions []Decision
}

// Settles returns how many transactions have had their effect once this step and all steps before
// it are done.
func (s Step) Settles() int {
	count := 0
	for _, d := range s.Decisions {
		if !d.Again {
			count++
		}
	}
	return count
}

// maxAgain bounds how often a plan decides about one transaction. Withheld labels take three
// rounds. The bound keeps a bug from occupying a processor for ever.
const maxAgain = 8

// Plan returns the writes that have the effect of applying [Decide] to the transactions of a node
// one by one, in order. Saves up to a restore are collapsed into one write. The record and the Node
// are nil if they do not exist; the result is right as long as they are current.
//
// The result of a restore is unknown until it is done: the API server chooses the revision, and
// admission plugins may change labels. A plan assumes the requested labels, and a revision that is
// not before that of any transaction, since all of them were recorded earlier. After a restore,
// execute another plan for the remaining transactions.
func Plan(queue []txn.Transaction, r *record.Record, n *nodeview.Node, policy labels.Policy) []Step {
	return PlanAt(revision.Revision{}, queue, r, n, policy)
}

// DecideFunc is the type of [Decide] with a fixed policy.
type DecideFunc func(t txn.Transaction, r *record.Record, n *nodeview.Node) Decision

// PlanBy is like Plan, but uses another decision function. Tests use it to break a rule on purpose.
func PlanBy(decide DecideFunc, queue []txn.Transaction, r *record.Record, n *nodeview.Node, bound labels.MachineBound) []Step {
	var steps []Step
	for _, t := range queue {
		for again, count := true, 0; again; count++ {
			if count == maxAgain {
				return steps // decide the rest after these steps
			}
			d := decide(t, r, n)
			switch d.Action {
			case Nothing:
			case Save:
				r = new(d.Record)
			case Restore:
				left := restored(queue, n, d)
				r, n = new(Noted(*r, *n, *left, bound)), left
			case Open:
				n = opened(queue, n)
			}
			steps, again = extend(steps, d), d.Again
		}
	}
	return steps
}

// extend adds a decision to the last step if the two need at most one write, and starts another
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
		last.Decision = d // a successful write confirms the reads, and so the earlier decisions
	}
	last.Decisions = append(last.Decisions, d)
	return steps
}

// WritesNode reports whether a decision writes to the Node, which makes it a separate step.
func (d Decision) WritesNode() bool { return d.Action == Restore || d.Action == Open }

// opened returns the expected Node after the startup taint is removed.
func opened(queue []txn.Transaction, n *nodeview.Node) *nodeview.Node {
	left := *n
	left.Marker, left.Gated = "", false
	for _, t := range queue {
		left.Revision = revision.Max(left.Revision, t.Revision)
	}
	return &left
}

// restored returns the expected Node after a restore.
func restored(queue []txn.Transaction, n *nodeview.Node, d Decision) *nodeview.Node {
	latest := n.Revision
	for _, t := range queue {
		latest = revision.Max(latest, t.Revision)
	}
	return &nodeview.Node{
		UID: n.UID, Revision: latest, Labels: d.Labels, Marker: d.Marker,
		Ownership: agents.Ownership{
			Machine: n.Machine.Same(n.Labels, d.Labels), Unclear: n.Unclear.Same(n.Labels, d.Labels),
			Edited: n.Edited.Same(n.Labels, d.Labels).Join(labels.Marker),
		},
		Identity: n.Identity, IsWhole: n.IsWhole, Settled: n.Settled, Unselected: n.Unselected,
	}
}

// ComesGated reports whether a transaction's Node had the startup taint when it was recorded.
func ComesGated(t txn.Transaction) bool { return t.Type == txn.Added && t.Marker == labels.Pending }

// NeedsNode reports whether a plan for these transactions may depend on the Node.
func NeedsNode(queue []txn.Transaction, r *record.Record, bound labels.MachineBound) bool {
	if NeedsIdentity(queue, r, bound) || slices.ContainsFunc(queue, ComesGated) || mayBeStranded(queue, r) {
		return true
	}
	first := slices.IndexFunc(queue, func(t txn.Transaction) bool { return t.Type == txn.Added })
	// The first transaction of a node without a record cannot be a restore, but it may turn the
	// next one into a restore.
	return first > 0 || first == 0 && (r != nil || slices.ContainsFunc(queue[1:], func(t txn.Transaction) bool { return t.Type == txn.Added }))
}
