package preserve_test

import (
	"math/rand/v2"
	"strconv"
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
// pool, which agents of the former machine had set, or with a copy of it. Then a person set, changed
// or removed it.
func TestEndKnowsHowTheNodeCame(t *testing.T) {
	r := record.Record{
		Node: "node-1", Labels: set{"rack": "r1", "pool": "a"}, Machine: "pool", Revision: revision.MustParse("5"), Source: "u1", Ended: true,
	}
	with, without, other := set{"rack": "r1", "pool": "a"}, set{"rack": "r1"}, set{"rack": "r1", "pool": "b"}
	for name, states := range map[string][]set{
		"set": {without, with}, "removed": {with, without}, "changed and changed back": {with, other, with}, "removed and set": {with, without, with},
	} {
		t.Run(name, func(t *testing.T) {
			var waiting []txn.Transaction
			for at, own := range states {
				waiting = append(waiting, stateOfU2(txn.Updated, 10+at, own))
			}
			waiting[0].Type, waiting[0].FoundsRecord = txn.Added, true
			end := stateOfU2(txn.Deleted, 20, states[len(states)-1])
			end.ByProcessor = true
			want := after(r, append(waiting, end))
			assert.Empty(t, want.Machine, "it is a person's")
			assert.Equal(t, want, after(r, preserve.Ending(end, &r, waiting)))
		})
	}
}

// stateOfU2 returns a transaction of u2, which was restored from the record of revision 5.
func stateOfU2(typ txn.Type, at int, own set) txn.Transaction {
	return txn.Transaction{Type: typ, Node: "node-1", UID: "u2", Revision: revision.MustParse(strconv.Itoa(at)), Labels: own, Marker: "5"}
}

// TestEndEqualsTheQueueOfARestoredNode: the end of an incarnation whose restore is not noted leaves
// the record that its pending transactions would leave in order, whoever sets and removes a label.
func TestEndEqualsTheQueueOfARestoredNode(t *testing.T) {
	for seed := range uint64(3000) {
		choices := rand.New(rand.NewPCG(seed, 0))
		r := record.Record{Node: "node-1", Labels: set{}, Revision: revision.MustParse("5"), Source: "u1", Ended: true}
		side := drawn(choices)
		r.Labels, r.Machine, r.Unclear, r.Overruled = side.Labels, side.Machine, side.Unclear, side.Overruled
		queue := []txn.Transaction{}
		for at := range 2 + choices.IntN(3) {
			state := stateOfU2(txn.Updated, 10+at, nil)
			side := drawn(choices)
			state.Labels, state.Machine, state.Unclear = side.Labels, side.Machine, side.Unclear
			if at > 0 {
				if _, isThere := state.Labels["pool"]; !isThere && choices.IntN(2) == 0 {
					state.Withdrawn = queue[at-1].Machine
				}
			}
			queue = append(queue, state)
		}
		end := &queue[len(queue)-1]
		queue[0].Type, queue[0].FoundsRecord = txn.Added, true
		end.Type, end.ByProcessor, end.Withdrawn = txn.Deleted, true, ""
		want := after(r, queue)
		require.Equal(t, want, after(r, preserve.Ending(*end, &r, queue[:len(queue)-1])), "seed %d: %+v, %+v", seed, r, queue)
	}
}

// drawn returns a value of pool, or none, and whose it is.
func drawn(choices *rand.Rand) labels.Side {
	side := labels.Side{Labels: set{}}
	if value := choices.IntN(3); value > 0 {
		side.Labels["pool"] = strconv.Itoa(value)
		switch choices.IntN(3) {
		case 0:
			side.Machine = "pool"
		case 1:
			side.Unclear = "pool"
		}
	} else if choices.IntN(2) == 0 {
		side.Overruled = "pool"
	}
	return side
}

// It is unknown who had set pool. A person changed it and set it back, which shows only in the
// queue.
func TestEndKnowsThatALabelWasSetBack(t *testing.T) {
	r := record.Record{
		Node: "node-1", Labels: set{"pool": "a"}, Unclear: "pool", Revision: revision.MustParse("5"), Source: "u1",
	}
	changed := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "u1", Revision: revision.MustParse("10"), Labels: set{"pool": "b"}}
	end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "u1", Revision: revision.MustParse("20"), Labels: set{"pool": "a"}, ByProcessor: true}
	want := after(r, []txn.Transaction{changed, end})
	assert.Empty(t, want.Unclear)
	assert.Equal(t, want, after(r, preserve.Ending(end, &r, []txn.Transaction{changed})))
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

// The webhook has restored u2 before the datastore was replaced. A person set pool, which agents of
// the former machine had set, or removed a copy of it, and a processor lets u2 go.
func TestEndAfterAnEarlierHistoryKnowsHowTheNodeCame(t *testing.T) {
	r := record.Record{
		Node: "node-1", Labels: set{"rack": "r1", "pool": "a"}, Machine: "pool", Revision: revision.MustParse("1000"), Source: "u1", Ended: true,
	}
	with, without := set{"rack": "r1", "pool": "a"}, set{"rack": "r1"}
	for name, tc := range map[string]struct {
		came, last set
		overruled  labels.Keys
	}{
		"set":     {without, with, ""},
		"removed": {with, without, "pool"},
	} {
		t.Run(name, func(t *testing.T) {
			added, changed, end := stateOfU2(txn.Added, 10, tc.came), stateOfU2(txn.Updated, 12, tc.last), stateOfU2(txn.Deleted, 14, tc.last)
			added.Marker, changed.Marker, end.Marker, end.ByProcessor = "1000", "1000", "1000", true
			n := &nodeview.Node{UID: "u2", Revision: end.Revision, Labels: tc.last, Marker: "1000"}
			queue := preserve.Ending(end, &r, []txn.Transaction{added, changed})
			steps := preserve.PlanAt(revision.MustParse("20"), queue, &r, n, labels.Policy{Mode: labels.Replace})
			require.Len(t, steps, 1)
			assert.Equal(t, tc.last, steps[0].Record.Labels)
			assert.Empty(t, steps[0].Record.Machine)
			assert.Empty(t, steps[0].Record.Unclear)
			assert.Equal(t, tc.overruled, steps[0].Record.Overruled)
		})
	}
}

// A taint that agents withdrew once, and that came back, was removed by a person: agents have not
// withdrawn it last.
func TestEndKnowsThatATaintWasRemovedAfterItsReturn(t *testing.T) {
	t.Parallel()
	with, without := set{string(taint): "gpu", "z": "1"}, set{"z": "1"}
	state := func(at string, own set, machine, unclear, withdrawn labels.Keys) txn.Transaction {
		return txn.Transaction{
			Type: txn.Updated, Node: "node-1", UID: "a", Revision: revision.MustParse(at), Labels: own,
			Machine: machine, Unclear: unclear, Withdrawn: withdrawn,
		}
	}
	r := record.Record{Node: "node-1", Labels: set{string(taint): "gpu"}, Machine: taint, Revision: revision.MustParse("1"), Source: "a"}
	queue := []txn.Transaction{
		state("2", with, taint, "", ""),
		preserve.Merged(state("3", without, "", "", taint), state("4", with, "", taint, "")),
	}
	end := state("6", without, "", "", "")
	end.Type, end.ByProcessor = txn.Deleted, true
	assert.Equal(t, taint, afterUnder(withPreserved, r, append(queue, end)).Overruled, "one by one")
	assert.Equal(t, taint, afterUnder(withPreserved, r, preserve.Ending(end, &r, queue)).Overruled, "in the end")
}
