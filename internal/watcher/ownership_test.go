package watcher_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

// owned returns a state whose agents last acted at a second; 0: never.
func owned(rv string, own set, machine, unclear labels.Keys, at int64) *nodeview.Node {
	n := state("a", rv, own)
	n.Machine, n.Unclear = machine, unclear
	if at > 0 {
		n.ActedAt = time.Unix(at, 0)
	}
	return n
}

// applied returns the record after these transactions.
func applied(t *testing.T, all []txn.Transaction) record.Record {
	t.Helper()
	var r *record.Record
	for _, tx := range all {
		if d := preserve.Decide(tx, r, nil, labels.Policy{Mode: labels.Replace}); d.Action == preserve.Save {
			r = &d.Record
		}
	}
	require.NotNil(t, r)
	return *r
}

// through returns the transactions that an outbox stores while writes fail, and those that it would
// store without superseding.
func through(t *testing.T, o watcher.Observer, states ...*nodeview.Node) (stored, each []txn.Transaction) {
	t.Helper()
	box, out := newOutbox()
	var before *nodeview.Node
	for _, s := range append(states, nil) {
		for _, tx := range o.Observe(before, s, observed) {
			each = append(each, tx)
			box.Add(watcher.Event{Transaction: tx, Observed: true})
		}
		before = s
	}
	_, err := box.Flush(t.Context(), "node-1")
	require.NoError(t, err)
	return out.stored, each
}

// The stored transactions have the effect of everything observed.
func TestSupersedingKeepsOwnership(t *testing.T) {
	for name, states := range map[string][]*nodeview.Node{
		"a user changes a label of an agent, and then removes it": {
			owned("1", set{"pool": "a", "zone": "z"}, "pool,zone", "", 1),
			owned("2", set{"pool": "mine", "zone": "z"}, "zone", "", 1),
			owned("3", set{"zone": "z"}, "zone", "", 1),
		},
		"removed, set by a user, removed": {
			owned("1", set{"pool": "a", "zone": "z"}, "pool,zone", "", 1),
			owned("2", set{"zone": "z"}, "zone", "", 1),
			owned("3", set{"pool": "mine", "zone": "z"}, "zone", "", 1),
			owned("4", set{"zone": "z"}, "zone", "", 1),
		},
		"an agent removes its label, and a user adds another": {
			owned("1", set{"pool": "a", "zone": "z"}, "pool,zone", "", 1),
			owned("2", set{"zone": "z", "feature": "f"}, "feature,zone", "", 2),
			owned("3", set{"zone": "z", "feature": "f", "rack": "r"}, "feature,zone", "", 2),
		},
		"an agent changes its label, and then its manager is forgotten": {
			owned("1", set{"pool": "a", "zone": "z"}, "pool,zone", "", 1),
			owned("2", set{"pool": "b", "zone": "z"}, "pool,zone", "", 2),
			owned("3", set{"pool": "b", "zone": "z", "rack": "r"}, "zone", "pool", 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			stored, each := through(t, watcher.Observer{RecordUpdates: true}, states...)
			require.Less(t, len(stored), len(each))
			want, got := applied(t, each), applied(t, stored)
			assert.Equal(t, want.Overruled, got.Overruled, "overruled")
			assert.Equal(t, want.Machine, got.Machine, "machine")
		})
	}
}

// TestWatcherReportsRemovals: the record may not show that the label was the machine's.
func TestWatcherReportsRemovals(t *testing.T) {
	o := watcher.Observer{RecordUpdates: true}
	before := owned("5", set{"pool": "a", "rack": "r1"}, "pool", "", 1)
	after := owned("6", set{"rack": "r1"}, "", "", 1)
	for name, r := range map[string]*record.Record{
		"a record of a former release":                                 {Unclear: "pool,rack"},
		"a user had applied it, too, when it was saved, but no longer": {},
	} {
		t.Run(name, func(t *testing.T) {
			r.Node, r.Labels, r.Revision, r.Source = "node-1", set{"pool": "a", "rack": "r1"}, revision.MustParse("5"), before.UID
			require.Empty(t, o.CatchUp(before, r, false, observed), "an upgrade of a quiet cluster records nothing")
			transactions := o.Observe(before, after, observed)
			require.Len(t, transactions, 1)
			d := preserve.Decide(transactions[0], r, nil, labels.Policy{Mode: labels.Replace})
			assert.Equal(t, labels.Keys("pool"), d.Record.Overruled)
		})
	}
}

// The stored transactions have the effect of all events, whatever agents and users do to a label.
func TestSupersedingEqualsEventByEvent(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		first := owned("1", set{"z": "0", "p": "x"}, "p", "", 0)
		saved := record.Record{Node: "node-1", Labels: first.Labels, Machine: "p", Revision: revision.MustParse("1"), Source: first.UID}
		switch g.IntN(4) {
		case 0:
			saved.Machine, saved.Overruled = "", "p"
			first.Machine = ""
		case 1:
			first = owned("1", set{"z": "0"}, "", "", 0)
			saved.Labels, saved.Machine, saved.Overruled = first.Labels, "", "p"
		case 2:
			saved.Machine = ""
			first.Machine = ""
		}
		box, out := newOutbox()
		var each []txn.Transaction
		before, at := first, 0
		var story []string
		for i := range 2 + g.IntN(3) {
			at += g.IntN(2)
			own, machine := set{"z": strconv.Itoa(i + 2)}, labels.Keys("")
			if g.IntN(3) > 0 {
				own["p"] = []string{"x", "y"}[g.IntN(2)]
				machine = []labels.Keys{"", "p"}[g.IntN(2)]
			}
			after := owned(strconv.Itoa(i+2), own, machine, "", int64(at))
			story = append(story, fmt.Sprintf("%v %s@%d", own, machine, at))
			for _, t := range (watcher.Observer{RecordUpdates: true}).Observe(before, after, observed) {
				each = append(each, t)
				box.Add(watcher.Event{Transaction: t, Observed: true})
			}
			before = after
		}
		_, err := box.Flush(t.Context(), "node-1")
		require.NoError(t, err)
		want, got := appliedTo(saved, each), appliedTo(saved, out.stored)
		require.True(t, preserve.Equivalent(want, got, labels.MachineBound{}), "from %+v: %q:\neach:   %+v\nstored: %+v", saved, story, want, got)
	}
}

// appliedTo returns the record after these transactions.
func appliedTo(r record.Record, all []txn.Transaction) record.Record {
	for _, t := range all {
		if d := preserve.Decide(t, &r, nil, labels.Policy{Mode: labels.Replace}); d.Action == preserve.Save {
			r = d.Record
		}
	}
	return r
}
