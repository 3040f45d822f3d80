package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// The machine's firmware has another UUID by now, and a cloud controller manager sets its
// providerID after the restore.
func TestProviderIDSetLater(t *testing.T) {
	r, n, _ := carriedOut(t, returned("b"), trusted(ofA), back(identity.Identity{SystemUUID: "new"}), replaceAll)
	n.Identity.ProviderID = machineA.ProviderID // by the cloud controller manager, seconds later
	look, waits := preserve.Recheck(*r)
	require.True(t, waits, "the node must be rechecked, because its identity is incomplete")
	_, n, _ = carriedOut(t, look, r, n, replaceAll)
	assert.Contains(t, n.Labels, role)
}

// A processor with keep has stored the marker of a restore but did not execute it (crash, or the
// API server rejected it). Then processors run with same-machine.
func TestDecidedByKeepAndDoneBySameMachine(t *testing.T) {
	same := labels.Policy{Mode: labels.Replace, Restricted: labels.SameMachine}
	keep := labels.Policy{Mode: labels.Replace, Restricted: labels.Keep}
	r, n, _ := carriedOut(t, returned("b"), trusted(ofA), back(machineB), same)
	require.NotContains(t, n.Labels, role)
	d := preserve.Decide(returned("b"), r, n, keep)
	require.Equal(t, preserve.Save, d.Action)
	_, n, _ = carriedOut(t, returned("b"), &d.Record, n, same)
	assert.NotContains(t, n.Labels, role, "same-machine puts them back only onto the machine that they were saved from")
}

// Machine A's label is marked for it, but not restored. A processor of a former release, which
// leaves withheld labels alone, handles the end of A and restores the other labels onto machine B.
func TestMarkerOfAnotherIncarnation(t *testing.T) {
	r, n, _ := carriedOut(t, returned("b"), trusted(ofA), back(silent), replaceAll)
	n.Identity = machineA
	look, _ := preserve.Recheck(*r)
	d := preserve.Decide(look, r, n, replaceAll)
	require.Equal(t, preserve.Save, d.Action)
	byFormer := d.Record // labels and notes are replaced, the annotation stays
	byFormer.Source, byFormer.Restored, byFormer.Identity = "c", record.Restoration{}, record.Identity{}
	byFormer.Revision = revision.MustParse("3000")
	c := &nodeview.Node{UID: "c", Revision: revision.MustParse("3000"), Labels: set{"rack": "r1"}, Identity: machineB, IsWhole: true}
	next := &byFormer
	if look, waits := preserve.Recheck(byFormer); waits {
		next, c, _ = carriedOut(t, look, next, c, replaceAll)
	}
	started := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "c", Revision: revision.MustParse("3000"), Labels: c.Labels}
	_, c, _ = carriedOut(t, started, next, c, replaceAll)
	assert.NotContains(t, c.Labels, role, "machine B gets the label of machine A")
}

// The restore of withheld labels ends, even if admission changes the marker, like any other
// restore.
func TestMarkerThatAdmissionRemoves(t *testing.T) {
	strip := func(d preserve.Decision, r *record.Record, n *nodeview.Node) (*record.Record, *nodeview.Node) {
		before := *r
		r, n = do(d, r, n)
		if d.Action == preserve.Restore {
			left := *n
			left.Marker = ""
			read := left
			return new(preserve.Noted(before, read, left, labels.MachineBound{})), &left
		}
		return r, n
	}
	r, n := trusted(ofA), back(silent)
	tx, writes := returned("b"), 0
	for range 20 {
		d := preserve.Decide(tx, r, n, replaceAll)
		r, n = strip(d, r, n)
		if !d.Again && n.Identity == silent {
			n.Identity = machineA
			continue
		}
		if d.Action == preserve.Restore {
			writes++
		}
		if !d.Again {
			return
		}
	}
	assert.Less(t, writes, 3, "it puts them back for ever")
}

// The record has both names of machine A. It returns and has reported only its UUID, the record is
// stored for the restore, and that Node disappears. The machine returns with its providerID alone.
func TestProviderIDForgottenBeforeTheRestore(t *testing.T) {
	away, _, _ := carriedOut(t, returned("b"), trusted(ofA), back(machineB), replaceAll)
	second := &nodeview.Node{UID: "c", Revision: revision.MustParse("3000"), Labels: set{}, Identity: identity.Identity{SystemUUID: "a"}, IsWhole: true}
	tx := returned("c")
	tx.Revision = second.Revision
	d := preserve.Decide(tx, away, second, replaceAll)
	require.Equal(t, preserve.Save, d.Action)
	third := &nodeview.Node{UID: "d", Revision: revision.MustParse("4000"), Labels: set{}, Identity: identity.Identity{ProviderID: "cloud:///a"}, IsWhole: true}
	tx = returned("d")
	tx.Revision = third.Revision
	_, third, _ = carriedOut(t, tx, &d.Record, third, replaceAll)
	assert.Contains(t, third.Labels, role, "the labels were saved from the machine with this providerID")
}
