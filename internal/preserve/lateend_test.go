package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// A person created the Node and gave it a restricted label, before a kubelet joined. No other
// machine may get the label, since the processor that lets the protected Node go can read which
// machine had it.
func TestEndOfALateMachineIsIdentified(t *testing.T) {
	const tier = "node-restriction.kubernetes.io/tier"
	r := &record.Record{
		Node: "node-1", Labels: set{tier: "db"}, Revision: revision.MustParse("5"), Source: "u1", Identity: record.Identity{UID: "u1"},
	}
	own := set{tier: "db", "kubernetes.io/os": "linux"} // the kubelet sets one
	n := &nodeview.Node{UID: "u1", Revision: revision.MustParse("9"), Labels: own, Identity: machineA, IsWhole: true}
	n.Machine = "kubernetes.io/os"
	joined := txn.Of(txn.Updated, n)
	end := txn.EndSeen(n, false)
	end.Revision = revision.MustParse("10")
	policy := labels.Policy{Mode: labels.Replace}
	for name, waiting := range map[string][]txn.Transaction{"no watcher": nil, "its update waits": {joined}} {
		t.Run(name, func(t *testing.T) {
			queue := preserve.Ending(end, r, waiting)
			read := n
			if !preserve.NeedsNode(queue, r, policy.MachineBound) {
				read = nil // as package apply
			}
			steps := preserve.Plan(queue, r, read, policy)
			require.Len(t, steps, 1)
			assert.Equal(t, machineA, steps[0].Record.Identity.Identity)
		})
	}
}

// The webhook has restored u2, and no processor ran. A watcher has recorded that u2 came without
// pool, which agents of the former machine had set, or with a copy of it. Then a person set or
// removed it.
func TestEndKnowsHowTheNodeCame(t *testing.T) {
	r := record.Record{
		Node: "node-1", Labels: set{"rack": "r1", "pool": "a"}, Machine: "pool", Revision: revision.MustParse("5"), Source: "u1", Ended: true,
	}
	of := func(typ txn.Type, rv string, own set) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: "u2", Revision: revision.MustParse(rv), Labels: own, Marker: "5", FoundsRecord: typ == txn.Added}
	}
	with, without := set{"rack": "r1", "pool": "a"}, set{"rack": "r1"}
	for name, states := range map[string][2]set{"set": {without, with}, "removed": {with, without}} {
		t.Run(name, func(t *testing.T) {
			waiting := []txn.Transaction{of(txn.Added, "10", states[0]), of(txn.Updated, "12", states[1])}
			end := of(txn.Deleted, "20", states[1])
			end.ByProcessor = true
			want := after(r, append(waiting, end))
			assert.Equal(t, want, after(r, preserve.Ending(end, &r, waiting)))
		})
	}
}

// The datastore was replaced while a withdrawal by the agents of u1 waited. The plan of the end
// first renews the record, which then still lacks the withdrawal.
func TestEndAfterAnEarlierHistoryKnowsWhatAgentsHaveWithdrawn(t *testing.T) {
	kept := set{"rack": "r1"}
	saved := &record.Record{
		Node: "node-1", Labels: set{"rack": "r1", "pool": "a"}, Machine: "pool", Revision: revision.MustParse("1000"), Source: "u1",
	}
	withdrawn := txn.Transaction{
		Type: txn.Updated, Node: "node-1", UID: "u1", Revision: revision.MustParse("1001"), Labels: kept, Withdrawn: "pool", Ahead: true,
	}
	end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "u1", Revision: revision.MustParse("12"), Labels: kept, ByProcessor: true}
	for name, n := range map[string]*nodeview.Node{
		"the node is gone":   nil,
		"the node is let go": {UID: "u1", Revision: end.Revision, Labels: kept},
	} {
		t.Run(name, func(t *testing.T) {
			queue := preserve.Ending(end, saved, []txn.Transaction{withdrawn})
			steps := preserve.PlanAt(revision.MustParse("20"), queue, saved, n, labels.Policy{Mode: labels.Replace})
			require.Len(t, steps, 1)
			assert.Equal(t, kept, steps[0].Record.Labels)
			assert.Empty(t, steps[0].Record.Overruled, "no person has removed pool")
		})
	}
}
