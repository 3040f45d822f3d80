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

// The record of these tests was saved at 100 and noted at 200. Its history has ended, and in this
// one the Nodes are at 50.
var present = revision.MustParse("50")

// of returns a transaction with a type.
func of(typ txn.Type, t txn.Transaction) txn.Transaction {
	t.Type = typ
	return t
}

// renewedBy returns the record after a plan, and the labels of the last restore.
func renewedBy(t *testing.T, r *record.Record, n *nodeview.Node, queue ...txn.Transaction) (*record.Record, set) {
	t.Helper()
	var given set
	renewals := 0
	for _, step := range preserve.PlanAt(present, queue, r, n, replaceAll) {
		switch step.Action {
		case preserve.Save:
			r = new(step.Record)
		case preserve.Restore:
			given = step.Labels
		case preserve.Nothing, preserve.Open:
		}
		for _, d := range step.Decisions {
			if d.Renews {
				renewals++
			}
		}
	}
	assert.LessOrEqual(t, renewals, 1, "a record is renewed once")
	return r, given
}

func TestEventsOfThisHistoryAreLaterThanARecordOfAnEarlierOne(t *testing.T) {
	edited := &nodeview.Node{UID: "restored", Revision: revision.MustParse("40"), Labels: changed}
	marked := &nodeview.Node{UID: "next", Revision: revision.MustParse("40"), Labels: changed, Marker: "100"}
	mistyped := with(saved(), func(r *record.Record) { r.Restored.Revision = revision.MustParse("35") })
	for name, tc := range map[string]struct {
		r     *record.Record
		n     *nodeview.Node
		queue []txn.Transaction
		want  set
	}{
		"an edit":                      {saved(), edited, []txn.Transaction{of(txn.Updated, event("restored", "30", "", changed))}, changed},
		"an edit, and a later one":     {saved(), edited, []txn.Transaction{of(txn.Updated, event("restored", "30", "", same))}, changed},
		"an end":                       {saved(), nil, []txn.Transaction{of(txn.Deleted, event("restored", "30", "", changed))}, changed},
		"an end of the source":         {neverRestored(), nil, []txn.Transaction{of(txn.Deleted, event("source", "30", "", changed))}, changed},
		"an end that was not noted":    {saved(), nil, []txn.Transaction{of(txn.Deleted, event("next", "30", "100", changed))}, changed},
		"an edit that was not noted":   {saved(), marked, []txn.Transaction{of(txn.Added, event("next", "30", "", same))}, changed},
		"an end of a stranger":         {saved(), nil, []txn.Transaction{of(txn.Deleted, event("stranger", "30", "", changed))}, same},
		"a mistyped revision, earlier": {mistyped, nil, []txn.Transaction{of(txn.Updated, event("restored", "34", "", changed))}, same},
		"a mistyped revision, later":   {mistyped, nil, []txn.Transaction{of(txn.Updated, event("restored", "36", "", changed))}, changed},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := renewedBy(t, tc.r, tc.n, tc.queue...)
			assert.Equal(t, tc.want, r.Labels)
			assert.False(t, preserve.Ahead(r, present))
		})
	}
}

func TestNodeGetsTheLabelsOfAnEarlierHistory(t *testing.T) {
	n := &nodeview.Node{UID: "next", Revision: revision.MustParse("40"), Marker: "7", Labels: set{"own": "label"}}
	added := of(txn.Added, event("next", "30", "7", set{"own": "label"}))
	for name, queue := range map[string][]txn.Transaction{
		"of the record":             {added},
		"and of what was left":      {of(txn.Deleted, event("restored", "300", "", changed)), added},
		"its start was left, too":   {of(txn.Deleted, event("restored", "300", "", changed)), of(txn.Added, event("next", "310", "", set{"own": "label"}))},
		"and of its end since then": {of(txn.Deleted, event("restored", "20", "", changed)), added},
	} {
		t.Run(name, func(t *testing.T) {
			want := changed
			if len(queue) == 1 {
				want = same
			}
			_, given := renewedBy(t, saved(), n, queue...)
			assert.Equal(t, want, given)
		})
	}
}

// What an earlier history has left in the queue never replaces what this one has saved.
func TestWhatAnEarlierHistoryLeftIsOlder(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: same, Revision: revision.MustParse("30"), Source: "source"}
	n := &nodeview.Node{UID: "source", Revision: revision.MustParse("40"), Labels: same}
	for _, typ := range txn.Types() {
		left := of(typ, event("source", "300", "", changed))
		left.FoundsRecord = typ == txn.Added
		got, given := renewedBy(t, r, n, left)
		assert.Equal(t, r, got, typ)
		assert.Nil(t, given, typ)
	}
	floor := preserve.Forgotten("node-1", nil, nil, revision.MustParse("30"))
	left := of(txn.Added, event("source", "300", "", changed))
	left.FoundsRecord = true
	got, _ := renewedBy(t, &floor, n, left)
	assert.True(t, got.Floor)
}

func TestFloorOfAnEarlierHistoryHidesNothing(t *testing.T) {
	floor := preserve.Forgotten("node-1", nil, nil, revision.MustParse("300"))
	left := of(txn.Deleted, event("source", "299", "", changed))
	r, _ := renewedBy(t, &floor, nil, left)
	assert.True(t, r.Floor, "it still hides what its own history left")
	r, _ = renewedBy(t, &floor, nil, left, of(txn.Deleted, event("next", "30", "", same)))
	assert.Equal(t, same, r.Labels)
}

// A restricted label of an earlier history still belongs to its machine.
func TestRestrictedLabelsOfAnEarlierHistoryStayWithTheirMachine(t *testing.T) {
	const trusted = "node-restriction.kubernetes.io/tier"
	policy := labels.Policy{Mode: labels.Replace, Restricted: labels.SameMachine}
	for name, isEnded := range map[string]bool{"its end is on record": true, "its end is not": false} {
		t.Run(name, func(t *testing.T) {
			r := saved()
			r.Labels, r.Ended = set{"rack": "r7", trusted: "a"}, isEnded
			r.Identity = record.Identity{UID: "restored", Identity: identity.Identity{ProviderID: "x://1", SystemUUID: "1"}}
			n := &nodeview.Node{UID: "next", Revision: revision.MustParse("40"), IsWhole: true, Identity: identity.Identity{ProviderID: "x://2", SystemUUID: "2"}}
			restores := 0
			for _, step := range preserve.PlanAt(present, []txn.Transaction{of(txn.Added, event("next", "30", "", nil))}, r, n, policy) {
				if step.Action == preserve.Restore {
					restores++
					require.NotContains(t, step.Labels, trusted)
					require.Contains(t, step.Labels, "rack")
				}
			}
			assert.Equal(t, 1, restores)
		})
	}
}
