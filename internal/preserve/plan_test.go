package preserve_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// A crash after any step leaves a state that the next attempt completes.
func TestExecutingAPlanEqualsApplyingDecideOneByOne(t *testing.T) {
	g := newGenerator(t)
	collapsed, restores := 0, 0
	for range 5 * rounds {
		queue, r, n, policy := g.queue(), g.record(), g.node(), g.policy()
		wantRecord, wantNode := r, n
		for _, tx := range queue {
			wantRecord, wantNode = apply(preserve.Decide(tx, wantRecord, wantNode, policy), wantRecord, wantNode)
		}

		steps := preserve.Plan(queue, r, n, policy)
		crashAfter := g.IntN(len(steps) + 1)
		gotRecord, gotNode, settled := r, n, 0
		for i, step := range steps {
			if i == crashAfter { // the next attempt takes the remaining transactions, from the current state
				break
			}
			gotRecord, gotNode = apply(step.Decision, gotRecord, gotNode)
			settled += step.Settles()
			collapsed += step.Settles() - 1
			if step.Action == preserve.Restore {
				restores++
			}
		}
		for _, step := range preserve.Plan(queue[settled:], gotRecord, gotNode, policy) {
			gotRecord, gotNode = apply(step.Decision, gotRecord, gotNode)
			settled += step.Settles()
		}
		require.Equal(t, len(queue), settled)
		require.Equal(t, state(wantRecord), state(gotRecord), "%+v on %+v and %+v", queue, r, n)
		require.Equal(t, wantNode, gotNode, "%+v on %+v and %+v", queue, r, n)
	}
	assert.Greater(t, collapsed, rounds)
	assert.Greater(t, restores, rounds/10)
}

func TestPlanCollapsesSavesBeforeRestore(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("10"), Source: "first"}
	event := func(typ txn.Type, uid types.UID, rv, rack string) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: uid, Revision: revision.MustParse(rv), Labels: set{"rack": rack}}
	}
	live := &nodeview.Node{UID: "second", Revision: revision.MustParse("22"), Labels: set{"rack": "own"}}
	steps := preserve.Plan([]txn.Transaction{
		event(txn.Updated, "first", "9", "r0"), // old: confirmed by the write of the next two
		event(txn.Updated, "first", "11", "r2"),
		event(txn.Deleted, "first", "12", "r3"),
		event(txn.Added, "second", "21", "own"),
		event(txn.Updated, "second", "22", "own"),
	}, r, live, labels.Policy{Mode: labels.Replace})

	require.Len(t, steps, 3)
	assert.Equal(t, []preserve.Action{preserve.Nothing, preserve.Save, preserve.Save}, actions(steps[0]))
	assert.Equal(t, preserve.Save, steps[0].Action)
	assert.Equal(t, set{"rack": "r3"}, steps[0].Record.Labels)
	assert.Equal(t, []preserve.Action{preserve.Restore}, actions(steps[1]))
	assert.Equal(t, set{"rack": "r3"}, steps[1].Labels)
	assert.Equal(t, []preserve.Action{preserve.Nothing}, actions(steps[2]))
	assert.Equal(t, "10", r.Revision.String(), "the argument stays as it is")
}

func TestPlanOfEmptyQueueIsEmpty(t *testing.T) {
	assert.Empty(t, preserve.Plan(nil, nil, nil, replaceAll))
}

func TestPlanIgnoresUnneededNode(t *testing.T) {
	g := newGenerator(t)
	needed := 0
	for range 5 * rounds {
		queue, r, n, policy := g.queue(), g.record(), g.node(), g.policy()
		if preserve.NeedsNode(queue, r, labels.MachineBound{}) {
			needed++
			continue
		}
		require.Equal(t, preserve.Plan(queue, r, nil, policy), preserve.Plan(queue, r, n, policy), "%+v on %+v and %+v", queue, r, n)
	}
	assert.Less(t, needed, 5*rounds)
}

// queue returns a few transactions in the order of a queue.
func (g generator) queue() []txn.Transaction {
	all := make([]txn.Transaction, 1+g.IntN(5))
	for i := range all {
		all[i] = g.transaction()
		all[i].Revision = revision.MustParse(strconv.Itoa(2*i + 1 + g.IntN(2)))
		if g.IntN(2) == 0 { // no event has the marker of a later revision
			all[i].Marker = strconv.Itoa(1 + g.IntN(2*i+1))
		} else {
			all[i].Marker = ""
		}
	}
	slices.SortFunc(all, txn.Compare)
	return all
}

func actions(s preserve.Step) []preserve.Action {
	var all []preserve.Action
	for _, d := range s.Decisions {
		all = append(all, d.Action)
	}
	return all
}

// TestPlanEnds: a decision that repeats for ever is cut off, and its transaction is not settled.
func TestPlanEnds(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: set{}, Revision: revision.MustParse("1"), Source: "a"}
	tx := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "a", Revision: revision.MustParse("2")}
	steps := preserve.PlanBy(func(txn.Transaction, *record.Record, *nodeview.Node) preserve.Decision {
		return preserve.Decision{Action: preserve.Save, Record: *r, Again: true}
	}, []txn.Transaction{tx}, r, nil, labels.MachineBound{})
	require.Len(t, steps, 1)
	assert.Zero(t, steps[0].Settles())
}
