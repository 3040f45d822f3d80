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

func TestDecideAfterTheNodeWasForgotten(t *testing.T) {
	founding := func(t txn.Transaction) txn.Transaction { t.FoundsRecord = true; return t }
	for name, tc := range map[string]struct {
		typ  txn.Type
		t    txn.Transaction
		want preserve.Decision
	}{
		"an end from before":          {txn.Deleted, event("source", "299", "100", same), nothing()},
		"an end just then":            {txn.Deleted, event("source", "300", "100", same), nothing()},
		"an update from before":       {txn.Updated, event("source", "99", "", changed), nothing()},
		"an add from before":          {txn.Added, founding(event("restored", "200", "", changed)), nothing()},
		"the next add":                {txn.Added, founding(event("next", "301", "", changed)), replaced("next", "301", changed)},
		"the next add, founding none": {txn.Added, event("next", "301", "", changed), nothing()},
		"the next update":             {txn.Updated, event("next", "302", "", changed), replaced("next", "302", changed)},
		"the next end":                {txn.Deleted, event("next", "303", "", changed), replaced("next", "303", changed)},
		"with the floor as marker":    {txn.Deleted, event("next", "303", "300", changed), replaced("next", "303", changed)},
	} {
		t.Run(name, func(t *testing.T) {
			tc.t.Type = tc.typ
			floor := preserve.Forgotten("node-1", nil, nil, revision.MustParse("300"))
			live := &nodeview.Node{UID: tc.t.UID, Revision: revision.MustParse("400"), Labels: set{"own": "label"}}
			got := preserve.Decide(tc.t, &floor, live, replaceAll)
			got.Reason = ""
			tc.want.Record.Ended = tc.want.Action == preserve.Save && tc.typ == txn.Deleted
			assert.Equal(t, tc.want, got)
		})
	}
}

// Earlier events have no effect, in any order, and later ones have the effect that they have on a
// node without a record.
func TestFloorHidesAllThatWasBefore(t *testing.T) {
	g := newGenerator(t)
	before, after := 0, 0
	for range rounds {
		floor := preserve.Forgotten("node-1", nil, nil, revision.Of(g.rv()))
		tx, n, policy := g.transaction(), g.node(), g.policy()
		require.False(t, preserve.Owned(floor, tx.UID, tx.Marker))
		require.False(t, preserve.Applied(tx, floor, labels.MachineBound{}))
		d := preserve.Decide(tx, &floor, n, policy)
		if !tx.Revision.After(floor.Revision) {
			before++
			require.Equal(t, preserve.Nothing, d.Action, "%+v on %+v", tx, floor)
			continue
		}
		after++
		require.Equal(t, preserve.Decide(tx, nil, n, policy), d, "%+v on %+v", tx, floor)
	}
	require.Positive(t, before)
	require.Positive(t, after)
}

// A live Node that is forgotten keeps its labels: no earlier event changes the remaining record or
// the Node.
func TestForgottenNodeThatIsLiveKeepsItsLabels(t *testing.T) {
	g := newGenerator(t)
	for range rounds {
		n := nodeview.Node{UID: g.uid(), Revision: revision.MustParse("13"), Labels: g.labels(), Marker: g.marker()}
		r := preserve.Forgotten("node-1", nil, &n, revision.MustParse("14"))
		require.Equal(t, record.Record{Node: "node-1", Labels: n.Labels, Revision: n.Revision, Source: n.UID}, r)
		late := g.transaction()
		d := preserve.Decide(late, &r, &n, g.policy())
		require.Equal(t, preserve.Nothing, d.Action, "%+v on %+v and %+v", late, r, n)
	}
}

// A label that a policy has set, or that came with a copy of the former Node, does not become a
// user's when the restored Node is forgotten.
func TestForgottenNodeKeepsTheSettersOfItsLabels(t *testing.T) {
	t.Parallel()
	removed := record.Record{
		Node: "node-1", Revision: revision.MustParse("9"), Source: "a", Machine: "copied,changed", Unclear: "policy,set",
		Labels: map[string]string{"copied": "1", "changed": "1", "policy": "1", "set": "1", "rack": "r1"}, Overruled: "gone",
	}
	n := nodeview.Node{
		UID: "b", Revision: revision.MustParse("13"), Marker: "9",
		Labels: map[string]string{"copied": "1", "changed": "2", "policy": "1", "set": "2", "rack": "r1", "agent": "1"},
	}
	n.Admitted, n.Machine = "policy,rack", "agent"
	forgotten := func() record.Record { return preserve.Forgotten("node-1", &removed, &n, revision.MustParse("14")) }
	want := record.Record{Node: "node-1", Labels: n.Labels, Revision: n.Revision, Source: "b", Machine: "agent,copied", Unclear: "copied,policy"}
	assert.Equal(t, want, forgotten())
	n.Marker = "pending"
	want.Machine, want.Unclear = "agent", "policy"
	assert.Equal(t, want, forgotten(), "only the webhook has given it labels")
	n.Admitted = ""
	want.Unclear = ""
	assert.Equal(t, want, forgotten(), "it was never restored")
	removed.Restored = record.Restoration{UID: "b", Revision: revision.MustParse("13")}
	want.Machine, want.Unclear, want.Overruled = "agent", "policy", "changed,copied"
	assert.Equal(t, want, forgotten(), "what agents had set on it, and a user has set again, is the user's")
}

// A record notes the end of the incarnation that it follows, until it follows the next one.
func TestRecordNotesTheEndOfItsIncarnation(t *testing.T) {
	g := newGenerator(t)
	ended := 0
	for range rounds {
		tx, r, n := g.transaction(), g.record(), g.node()
		d := preserve.Decide(tx, r, n, g.policy())
		if d.Action != preserve.Save {
			continue
		}
		require.Equal(t, tx.Type == txn.Deleted, d.Record.Ended, "%+v on %+v", tx, r)
		if !d.Record.Ended {
			continue
		}
		ended++
		restored := preserve.Noted(d.Record, nodeview.Node{}, nodeview.Node{UID: "next", Revision: revision.MustParse("99"), Labels: d.Record.Labels}, labels.MachineBound{})
		require.False(t, restored.Ended)
	}
	require.Positive(t, ended)
}
