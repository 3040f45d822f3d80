package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

const zone = "node-restriction.kubernetes.io/zone"

// followingB is a record that follows the incarnation b of machine B, which is trusted with a zone,
// and that withholds labels saved from machine A.
func followingB() record.Record {
	return record.Record{
		Node: "node-1", Labels: set{zone: "b", "rack": "r1"}, Revision: revision.MustParse("100"), Source: "b",
		Identity: record.Identity{UID: "b", Identity: machineB},
		Withheld: []record.Withheld{{Labels: set{role: ""}, Source: "a", Identity: machineA}},
	}
}

// endOfB is the last state of the incarnation b, with an edit. It is recorded late.
var endOfB = txn.Transaction{
	Type: txn.Deleted, Node: "node-1", UID: "b", Revision: revision.MustParse("150"), Labels: set{zone: "b", "rack": "r2"},
}

// Machine A returns, and its labels are marked for the restore. The restore is rejected, or its
// processor crashes. Then the end of the previous incarnation, which has none of machine A's
// labels, is recorded late.
func TestLateStateKeepsMarkedLabels(t *testing.T) {
	node := back(machineA)
	node.UID = "c"
	d := preserve.Decide(returned("c"), new(followingB()), node, replaceAll)
	require.Equal(t, preserve.Save, d.Action)
	require.True(t, d.Record.WaitsFor("c"), "they are marked for the restore")

	late := preserve.Decide(endOfB, &d.Record, node, replaceAll)
	require.Equal(t, preserve.Save, late.Action, late.Reason)
	assert.Contains(t, late.Record.All(), role, "what belongs to machine A is not lost")
	_, left, _ := carriedOut(t, returned("c"), &late.Record, node, replaceAll)
	assert.Contains(t, left.Labels, role, "machine A gets it back")
}

// As before, but machine A is gone again without a restore, and machine B returns. Then the end of
// B's former incarnation is recorded late.
func TestLateStateRestoresNothingOntoAnotherMachine(t *testing.T) {
	first := back(machineA)
	first.UID = "c"
	d := preserve.Decide(returned("c"), new(followingB()), first, replaceAll)
	second := back(machineB)
	second.UID, second.Revision = "d", revision.MustParse("300")
	d = preserve.Decide(returned("d"), &d.Record, second, replaceAll)
	require.Equal(t, preserve.Save, d.Action)

	late := preserve.Decide(endOfB, &d.Record, second, replaceAll)
	require.Equal(t, preserve.Save, late.Action, late.Reason)
	assert.Equal(t, machineB, late.Record.Identity.Identity, "zone was saved from machine B")
	assert.Contains(t, late.Record.All(), role, "what belongs to machine A is not lost")

	third := back(machineA)
	third.UID, third.Revision = "e", revision.MustParse("400")
	_, left, _ := carriedOut(t, returned("e"), &late.Record, third, replaceAll)
	assert.NotContains(t, left.Labels, zone, "machine A does not get the label of machine B")
	assert.Contains(t, left.Labels, role)
}

// The restore was done, and its processor crashed before noting it. Then the end of the previous
// incarnation is recorded late, and the restore is repeated with its labels.
func TestLateStateRemovesNoRestoredLabels(t *testing.T) {
	node := back(machineA)
	node.UID = "c"
	d := preserve.Decide(returned("c"), new(followingB()), node, replaceAll)
	resolved := d.Record
	d = preserve.Decide(returned("c"), &resolved, node, replaceAll)
	require.Equal(t, preserve.Restore, d.Action)
	_, node = do(d, &resolved, node) // and not noted
	require.Contains(t, node.Labels, role)

	late := preserve.Decide(endOfB, &resolved, node, replaceAll)
	r, left, _ := carriedOut(t, returned("c"), &late.Record, node, replaceAll)
	assert.Equal(t, "r2", left.Labels["rack"])
	assert.Contains(t, left.Labels, role, "machine A keeps its label")
	assert.Contains(t, r.All(), role)
}
