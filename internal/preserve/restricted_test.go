package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

const role = "node-role.kubernetes.io/worker"

var (
	machineA = identity.Identity{ProviderID: "cloud:///a", SystemUUID: "a"}
	machineB = identity.Identity{ProviderID: "cloud:///b", SystemUUID: "b"}
	silent   = identity.Identity{}
)

// trusted is the record of a trusted machine that is away.
func trusted(known record.Identity) *record.Record {
	return &record.Record{
		Node: "node-1", Labels: set{role: "", "rack": "r1"}, Revision: revision.MustParse("100"), Source: "a", Identity: known, Ended: true,
	}
}

// ofA is the identity of machine A in a record.
var ofA = record.Identity{UID: "a", Identity: machineA}

// back is a Node that has returned and reports an identity.
func back(reported identity.Identity) *nodeview.Node {
	return &nodeview.Node{UID: "b", Revision: revision.MustParse("200"), Labels: set{}, Identity: reported, IsWhole: true}
}

func returned(uid types.UID) txn.Transaction {
	return txn.Transaction{Type: txn.Added, Node: "node-1", UID: uid, Revision: revision.MustParse("200"), Labels: set{}, FoundsRecord: true}
}

// A processor reads a Node that has reported no machine yet, and its record only after that of a later
// state, when the Node had reported its machine and was trusted.
func TestNodeReadBeforeItWasTrustedDoesNotIdentifyTheMachine(t *testing.T) {
	r := with(trusted(record.Identity{}), func(r *record.Record) { r.Ended = false })
	n := &nodeview.Node{UID: "a", Revision: revision.MustParse("90"), Labels: set{"rack": "r1"}, Identity: silent, IsWhole: true}
	added := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "a", Revision: revision.MustParse("90"), Labels: n.Labels, FoundsRecord: true}
	assert.Equal(t, preserve.Nothing, preserve.Decide(added, r, n, replaceAll).Action)
	n.Revision = r.Revision
	assert.Equal(t, preserve.Save, preserve.Decide(added, r, n, replaceAll).Action, "now it is known that the machine reports nothing")
}

// A processor reads a Node, and its record only after the next incarnation has the labels.
func TestNodeReadBeforeTheNextRestoreDoesNotIdentifyTheMachine(t *testing.T) {
	r := trusted(record.Identity{UID: "b", Identity: machineB})
	r.Ended, r.Restored = false, record.Restoration{UID: "b", Revision: revision.MustParse("200")}
	n := &nodeview.Node{UID: "a", Revision: revision.MustParse("90"), Labels: r.Labels, Identity: machineA, IsWhole: true}
	d := preserve.Decide(txn.Transaction{Type: txn.Added, Node: "node-1", UID: "a", Revision: revision.MustParse("90")}, r, n, replaceAll)
	assert.Equal(t, preserve.Nothing, d.Action, d.Reason)
}

// do executes a decision like an API server without admission plugins.
func do(d preserve.Decision, r *record.Record, n *nodeview.Node) (*record.Record, *nodeview.Node) {
	switch d.Action {
	case preserve.Nothing, preserve.Open:
	case preserve.Save:
		return &d.Record, n
	case preserve.Restore:
		left := *n
		left.Revision, left.Labels, left.Marker = revision.MustParse(n.Revision.String()+"1"), d.Labels, d.Marker
		left.Edited = n.Edited.Same(n.Labels, d.Labels).Union(labels.Marker)
		return new(preserve.Noted(*r, *n, left, labels.MachineBound{})), &left
	}
	return r, n
}

// carriedOut decides and executes until a transaction is settled. Restores are done as requested.
func carriedOut(t *testing.T, tx txn.Transaction, r *record.Record, n *nodeview.Node, p labels.Policy) (*record.Record, *nodeview.Node, []preserve.Held) {
	t.Helper()
	var held []preserve.Held
	for range 10 {
		d := preserve.Decide(tx, r, n, p)
		held = append(held, d.Held...)
		r, n = do(d, r, n)
		if !d.Again {
			return r, n, held
		}
	}
	t.Fatal("it never ends")
	return nil, nil, nil
}

func TestRestrictedLabelsReturnToTheirMachine(t *testing.T) {
	byHand := trusted(record.Identity{})
	byHand.Source = ""
	for name, tc := range map[string]struct {
		r        *record.Record
		reported identity.Identity
		mode     labels.RestrictedMode
		gets     bool
		why      preserve.Why // of the event
	}{
		"same machine":                          {r: trusted(ofA), reported: machineA, gets: true},
		"same provider ID, other firmware":      {r: trusted(ofA), reported: identity.Identity{ProviderID: "cloud:///a", SystemUUID: "c"}, gets: true},
		"same firmware, no provider ID":         {r: trusted(ofA), reported: identity.Identity{SystemUUID: "a"}, gets: true},
		"another machine":                       {r: trusted(ofA), reported: machineB, why: preserve.OtherMachine},
		"reports nothing yet":                   {r: trusted(ofA), reported: silent, why: preserve.Waiting},
		"was a Node by hand":                    {r: trusted(record.Identity{UID: "a"}), reported: machineB, gets: true},
		"was created manually, reports nothing": {r: trusted(record.Identity{UID: "a"}), reported: silent, gets: true},
		"was gone before it was read":           {r: trusted(record.Identity{}), reported: machineA, why: preserve.UnknownMachine},
		"a user's label":                        {r: byHand, reported: machineB, gets: true},
		"keep":                                  {r: trusted(ofA), reported: machineB, mode: labels.Keep, gets: true},
		"keep, unknown":                         {r: trusted(record.Identity{}), reported: machineB, mode: labels.Keep, gets: true},
		"drop":                                  {r: trusted(ofA), reported: machineA, mode: labels.Drop, why: preserve.Dropped},
	} {
		t.Run(name, func(t *testing.T) {
			p := labels.Policy{Mode: labels.Replace, Restricted: tc.mode}
			r, n, held := carriedOut(t, returned("b"), tc.r, back(tc.reported), p)
			assert.Equal(t, "r1", n.Labels["rack"], "a node never waits for its other labels")
			_, gets := n.Labels[role]
			assert.Equal(t, tc.gets, gets)
			_, isSaved := r.All()[role]
			assert.Equal(t, tc.why != preserve.Dropped, isSaved, "labels that are not restored are kept")
			assert.Equal(t, tc.why == preserve.Waiting, r.WaitsFor("b"))
			if tc.why == "" {
				assert.Empty(t, held)
			} else {
				assert.Equal(t, []preserve.Held{{Keys: role, Why: tc.why}}, held)
			}
			again := preserve.Decide(returned("b"), r, n, p)
			assert.Equal(t, preserve.Nothing, again.Action, again.Reason)
		})
	}
}

// The record is enough, without the transaction.
func TestWaitingLabelsAreDecidedOnceIdentityIsKnown(t *testing.T) {
	waiting, n, _ := carriedOut(t, returned("b"), trusted(ofA), back(silent), replaceAll)
	n.Labels["rack"], n.Labels["new"] = "r2", "1" // users edit the node in the meantime
	look, isWaiting := preserve.Recheck(*waiting)
	require.True(t, isWaiting)
	require.Equal(t, preserve.Nothing, preserve.Decide(look, waiting, n, replaceAll).Action)

	n.Identity = machineB
	other, left, held := carriedOut(t, look, waiting, n, replaceAll)
	assert.Equal(t, []preserve.Held{{Keys: role, Why: preserve.OtherMachine}}, held)
	assert.NotContains(t, left.Labels, role)
	assert.Contains(t, other.All(), role)
	_, isWaiting = preserve.Recheck(*other)
	assert.False(t, isWaiting)

	n.Identity = machineA
	same, left, held := carriedOut(t, look, waiting, n, replaceAll)
	assert.Empty(t, held)
	assert.Equal(t, set{role: "", "rack": "r2", "new": "1"}, left.Labels)
	assert.Contains(t, same.All(), role)
	_, isWaiting = preserve.Recheck(*same)
	assert.False(t, isWaiting)

	gone, _, _ := carriedOut(t, look, waiting, nil, replaceAll)
	_, isWaiting = preserve.Recheck(*gone)
	assert.False(t, isWaiting)
	assert.Contains(t, gone.All(), role)
}

// The write that restored the labels was done and not noted.
func TestUserEditAfterRestoreOfWithheldLabelsCounts(t *testing.T) {
	waiting, n, _ := carriedOut(t, returned("b"), trusted(ofA), back(silent), replaceAll)
	look, _ := preserve.Recheck(*waiting)
	n.Identity = machineA
	d := preserve.Decide(look, waiting, n, replaceAll)
	decided, _ := do(d, waiting, n)
	d = preserve.Decide(look, decided, n, replaceAll)
	require.Equal(t, preserve.Restore, d.Action)

	lost := *n
	lost.Marker, lost.Labels, lost.Revision = d.Marker, set{"rack": "r1"}, revision.MustParse("400000") // a user has removed it since
	noted, left, _ := carriedOut(t, look, decided, &lost, replaceAll)
	assert.NotContains(t, left.Labels, role)
	update := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "b", Revision: lost.Revision, Labels: lost.Labels, Marker: lost.Marker}
	for _, r := range []*record.Record{noted, decided} {
		d = preserve.Decide(update, r, &lost, replaceAll)
		require.Equal(t, preserve.Save, d.Action)
		assert.NotContains(t, d.Record.All(), role)
	}

	// The Node is gone before a processor reads it again, see also
	// TestUserEditAfterUnnotedRestoreCounts.
	gone, _, _ := carriedOut(t, look, decided, nil, replaceAll)
	assert.Contains(t, gone.All(), role)
	_, isWaiting := preserve.Recheck(*gone)
	assert.False(t, isWaiting)
	stored, err := record.Parse(gone.ConfigMap("records"))
	require.NoError(t, err)
	require.True(t, gone.Equal(*stored))
	end := update
	end.Type = txn.Deleted
	assert.NotContains(t, preserve.Decide(end, stored, nil, replaceAll).Record.All(), role, "it had the label, and a user has removed it")
	end.Marker = n.Marker
	never := preserve.Decide(end, stored, nil, replaceAll)
	require.Equal(t, preserve.Save, never.Action)
	assert.Contains(t, never.Record.All(), role, "it never had the label")
}

// The withheld label was restored in the same patch as all others. The answer is lost, a user
// removed the label, and the Node is gone.
func TestUserEditAfterUnnotedRestoreCounts(t *testing.T) {
	kept, _, _ := carriedOut(t, returned("b"), trusted(ofA), back(machineB), replaceAll)
	require.Len(t, kept.Withheld, 1)
	added, n := returned("c"), back(machineA)
	added.Revision = revision.MustParse("500000")
	n.UID, n.Revision = "c", added.Revision
	decided, _ := do(preserve.Decide(added, kept, n, replaceAll), kept, n)
	restore := preserve.Decide(added, decided, n, replaceAll)
	require.Equal(t, preserve.Restore, restore.Action)
	require.Contains(t, restore.Labels, role)

	end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "c", Revision: revision.MustParse("500100"), Labels: set{"rack": "r1"}, Marker: restore.Marker}
	r := decided
	for _, step := range preserve.Plan([]txn.Transaction{added, end}, decided, nil, replaceAll) {
		if step.Action == preserve.Save {
			r = &step.Record
		}
	}
	assert.NotContains(t, r.All(), role)
}

// The labels are marked for a Node that has its other labels, and an edit of one of these is
// recorded first.
func TestUserEditBeforeRestoreKeepsWithheldLabels(t *testing.T) {
	waiting, n, _ := carriedOut(t, returned("b"), trusted(ofA), back(silent), replaceAll)
	look, _ := preserve.Recheck(*waiting)
	n.Identity = machineA
	decided, _ := do(preserve.Decide(look, waiting, n, replaceAll), waiting, n)
	n.Revision, n.Labels = revision.MustParse("400000"), set{"rack": "r2"}
	update := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "b", Revision: n.Revision, Labels: n.Labels, Marker: n.Marker}
	d := preserve.Decide(update, decided, n, replaceAll)
	require.Equal(t, preserve.Save, d.Action)
	require.Contains(t, d.Record.All(), role)
	_, left, _ := carriedOut(t, look, &d.Record, n, replaceAll)
	assert.Equal(t, set{role: "", "rack": "r2"}, left.Labels)
}

// When the restore is noted late, the Node has the labels that users have
// left.
func TestWithheldLabelsRestoredWithTheOthers(t *testing.T) {
	r, _, _ := carriedOut(t, returned("b"), trusted(ofA), back(machineB), replaceAll)
	require.Contains(t, r.WithheldKeys(), role)
	n := back(machineA)
	n.UID, n.Revision = "c", revision.MustParse("500000")
	d := preserve.Decide(returned("c"), r, n, replaceAll)
	require.True(t, d.Again)
	decided, _ := do(d, r, n)
	d = preserve.Decide(returned("c"), decided, n, replaceAll)
	require.Equal(t, preserve.Restore, d.Action)
	require.Contains(t, d.Labels, role)
	for _, left := range []set{{"rack": "r1", role: ""}, {"rack": "r1"}} {
		later := *n
		later.Labels, later.Marker, later.Revision = left, d.Marker, revision.MustParse("600000")
		noted, after, _ := carriedOut(t, returned("c"), decided, &later, replaceAll)
		assert.Equal(t, left, after.Labels)
		assert.Equal(t, left, noted.All())
		update := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "c", Revision: later.Revision, Labels: left, Marker: d.Marker}
		saved := preserve.Decide(update, decided, &later, replaceAll)
		require.Equal(t, preserve.Save, saved.Action)
		assert.Equal(t, left, saved.Record.All(), "an edit is recorded before the note")
	}
}

func TestWithheldLabelsAreDroppedWhenSet(t *testing.T) {
	r, n, _ := carriedOut(t, returned("b"), trusted(ofA), back(machineB), replaceAll)
	update := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "b", Revision: revision.MustParse("400000"), Labels: set{role: "mine"}}
	d := preserve.Decide(update, r, n, replaceAll)
	assert.Equal(t, set{role: "mine"}, d.Record.All())
	assert.Equal(t, record.Identity{UID: "b", Identity: machineB}, d.Record.Identity)
}

// The labels wait until the selector matches again.
func TestNothingIsRestoredOntoUnselectedNode(t *testing.T) {
	r, n, _ := carriedOut(t, returned("b"), trusted(ofA), back(silent), replaceAll)
	look, waits := preserve.Recheck(*r)
	require.True(t, waits)
	identified := *n
	identified.Identity, identified.Unselected = machineA, true
	assert.Equal(t, preserve.Nothing, preserve.Decide(look, r, &identified, replaceAll).Action)
	identified.Unselected = false
	_, n, _ = carriedOut(t, look, r, &identified, replaceAll)
	assert.Contains(t, n.Labels, role)
}

// The response to the write of the decision may be lost.
func TestMarkedLabelsWaitUntilRestored(t *testing.T) {
	r, n, _ := carriedOut(t, returned("b"), trusted(ofA), back(silent), replaceAll)
	look, _ := preserve.Recheck(*r)
	identified := *n
	identified.Identity = machineA
	d := preserve.Decide(look, r, &identified, replaceAll)
	require.Equal(t, preserve.Save, d.Action)
	again, waits := preserve.Recheck(d.Record)
	require.True(t, waits)
	r, n, _ = carriedOut(t, again, &d.Record, &identified, replaceAll)
	assert.Contains(t, n.Labels, role)
	_, waits = preserve.Recheck(*r)
	assert.False(t, waits, "it is done")
}

// TestOldNodeDecidesNothing: it was read before the record, which another incarnation has now.
func TestOldNodeDecidesNothing(t *testing.T) {
	r, _, _ := carriedOut(t, returned("b"), trusted(ofA), back(silent), replaceAll)
	former := back(machineA)
	former.UID, former.Revision = "a", revision.MustParse("90")
	tx := returned("a")
	tx.Revision, tx.FoundsRecord = former.Revision, false
	d := preserve.Decide(tx, r, former, replaceAll)
	assert.Equal(t, preserve.Restore, d.Action, "which fails, as that Node is gone")

	now := back(machineA)
	now.Revision, now.Marker = revision.MustParse("3000"), "100"
	look, _ := preserve.Recheck(*r)
	decided, _ := do(preserve.Decide(look, r, now, replaceAll), r, now)
	now.Identity = silent // as another processor has read it before
	d = preserve.Decide(look, decided, now, replaceAll)
	assert.Equal(t, preserve.Restore, d.Action, "the decision stays")
}

// A kubelet may have joined the Node since.
func TestEmptyIdentityDoesNotCoverLaterTrust(t *testing.T) {
	r := trusted(record.Identity{UID: "a"})
	end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "a", Revision: revision.MustParse("150"), Labels: set{role: "", "rack": "r2"}}
	d := preserve.Decide(end, r, nil, replaceAll)
	assert.Equal(t, r.Identity, d.Record.Identity, "the same labels are trusted")
	end.Labels = set{role: "later"}
	d = preserve.Decide(end, r, nil, replaceAll)
	assert.Equal(t, record.Identity{}, d.Record.Identity)
	_, n, held := carriedOut(t, returned("b"), &d.Record, back(machineB), replaceAll)
	assert.NotContains(t, n.Labels, role)
	assert.Equal(t, []preserve.Held{{Keys: role, Why: preserve.UnknownMachine}}, held)
}

func TestWithheldLabelsOutliveOtherMachines(t *testing.T) {
	r, n, _ := carriedOut(t, returned("b"), trusted(ofA), back(machineB), replaceAll)
	end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "b", Revision: revision.MustParse("400000"), Labels: n.Labels}
	r, _ = do(preserve.Decide(end, r, nil, replaceAll), r, nil)
	again := back(machineA)
	again.UID, again.Revision = "c", revision.MustParse("500000")
	_, n, held := carriedOut(t, returned("c"), r, again, replaceAll)
	assert.Empty(t, held)
	assert.Contains(t, n.Labels, role)
}

// Reading an identity requires the whole Node.
func TestIdentityIsReadOnlyIfNeeded(t *testing.T) {
	plain := &record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("100"), Source: "a"}
	agents := trusted(record.Identity{})
	agents.Machine = role
	known, partly, r2 := trusted(ofA), trusted(record.Identity{UID: "a", Identity: identity.Identity{SystemUUID: "a"}}), *plain
	withheld, _, _ := carriedOut(t, returned("b"), trusted(ofA), back(machineB), replaceAll)
	change := func(typ txn.Type, own set, machine labels.Keys) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: "a", Revision: revision.MustParse("150"), Labels: own, Machine: machine}
	}
	for name, tc := range map[string]struct {
		queue []txn.Transaction
		r     *record.Record
		want  bool
	}{
		"a return, nothing restricted":         {[]txn.Transaction{returned("b")}, plain, false},
		"a return, the agents' own":            {[]txn.Transaction{returned("b")}, agents, false},
		"a return":                             {[]txn.Transaction{returned("b")}, known, true},
		"a return, withheld":                   {[]txn.Transaction{returned("c")}, withheld, true},
		"a return, no record":                  {[]txn.Transaction{returned("b")}, nil, false},
		"a change, nothing restricted":         {[]txn.Transaction{change(txn.Updated, set{"rack": "r2"}, "")}, &r2, false},
		"a change, the agents' own":            {[]txn.Transaction{change(txn.Updated, set{role: ""}, role)}, &r2, false},
		"a change, nothing known":              {[]txn.Transaction{change(txn.Updated, set{role: ""}, "")}, &r2, true},
		"a change, all known":                  {[]txn.Transaction{change(txn.Updated, set{role: "2"}, "")}, known, false},
		"a change, one kind known":             {[]txn.Transaction{change(txn.Updated, set{role: "2"}, "")}, partly, true},
		"an end, one kind known":               {[]txn.Transaction{change(txn.Deleted, set{role: "2"}, "")}, partly, false},
		"an end, nothing known":                {[]txn.Transaction{change(txn.Deleted, set{role: "2"}, "")}, &r2, true},
		"a change and its end, one kind known": {[]txn.Transaction{change(txn.Updated, set{role: "2"}, ""), change(txn.Deleted, set{}, "")}, partly, false},
	} {
		assert.Equal(t, tc.want, preserve.NeedsIdentity(tc.queue, tc.r, labels.MachineBound{}), name)
	}
}

// A record of a former release lacks the machine.
func TestOwedIdentityIsNotedOnce(t *testing.T) {
	for name, reported := range map[string]identity.Identity{"a machine": machineA, "by hand": silent} {
		r := trusted(record.Identity{})
		require.True(t, preserve.IdentityOwed(*r, "a", labels.MachineBound{}), name)
		n := &nodeview.Node{UID: "a", Revision: revision.MustParse("100"), Labels: r.Labels, Identity: reported, IsWhole: true}
		tx := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "a", Revision: n.Revision, Labels: n.Labels, FoundsRecord: true}
		require.False(t, preserve.Applied(tx, *r, labels.MachineBound{}), name)
		after, _, _ := carriedOut(t, tx, r, n, replaceAll)
		assert.False(t, preserve.IdentityOwed(*after, "a", labels.MachineBound{}), name)
		assert.True(t, preserve.Applied(tx, *after, labels.MachineBound{}), name)
		assert.Equal(t, record.Identity{UID: "a", Identity: reported}, after.Identity, name)
		after.Identity = record.Identity{}
		assert.True(t, after.Equal(*r), "%s: nothing else changes", name)
	}
}

func TestOnlyNamedKeysBelongToTheName(t *testing.T) {
	const tenant = "node-restriction.kubernetes.io/tenant"
	r := trusted(ofA)
	r.Labels[tenant] = "x"
	after := preserve.UserRecordAfter(*r, set{role: "", tenant: "x", "rack": "r2"}, "rack,"+role, revision.MustParse("300"), labels.MachineBound{})
	assert.Equal(t, set{role: "", "rack": "r2"}, after.Labels)
	assert.Equal(t, []record.Withheld{{Labels: set{tenant: "x"}, Source: "a", Identity: machineA}}, after.Withheld)
	assert.False(t, preserve.Equivalent(*r, after, labels.MachineBound{}))

	_, n, _ := carriedOut(t, returned("b"), &after, back(machineB), replaceAll)
	assert.Equal(t, set{role: "", "rack": "r2"}, n.Labels)
	_, n, _ = carriedOut(t, returned("b"), &after, back(machineA), replaceAll)
	assert.Equal(t, set{role: "", tenant: "x", "rack": "r2"}, n.Labels)

	removed := preserve.UserRecordAfter(after, after.Labels, tenant, revision.MustParse("301"), labels.MachineBound{})
	assert.Empty(t, removed.Withheld)
	assert.True(t, preserve.Equivalent(after, preserve.UserRecordAfter(after, after.Labels, "", revision.MustParse("301"), labels.MachineBound{}), labels.MachineBound{}))
}

// Labels are about to be restored onto a Node that reported to be their machine, and now reports to
// be another one.
func TestMarkedLabelsAreRechecked(t *testing.T) {
	r := &record.Record{
		Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("100"), Source: "b",
		Withheld: []record.Withheld{{Labels: set{role: ""}, Source: "a", Identity: machineA, State: record.WaitingFor("b")}},
	}
	n := back(machineA)
	n.Labels, n.Marker = set{"rack": "r1"}, "100"
	look, _ := preserve.Recheck(*r)
	decided := preserve.Decide(look, r, n, replaceAll)
	require.Equal(t, preserve.Save, decided.Action)
	again := preserve.Decide(look, &decided.Record, n, replaceAll)
	require.Equal(t, preserve.Restore, again.Action)
	require.Contains(t, again.Labels, role)

	other := *n
	other.Identity, other.Revision = machineB, revision.MustParse("201")
	d := preserve.Decide(look, &decided.Record, &other, replaceAll)
	require.Equal(t, preserve.Save, d.Action)
	assert.Empty(t, d.Record.Withheld[0].State.Marker())
	assert.Equal(t, preserve.Nothing, preserve.Decide(look, &d.Record, &other, replaceAll).Action)
}
