package preserve_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Node u1 has rack and pool, which its agents set. Node u2 has registered with pool, too, and a
// user has removed it since.
func TestEnding(t *testing.T) {
	of := func(typ txn.Type, uid, rv, marker string, own set, machine labels.Keys) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: types.UID(uid), Revision: revision.MustParse(rv), Marker: marker, Labels: own, Machine: machine}
	}
	with, without := set{"rack": "r1", "pool": "a"}, set{"rack": "r1"}
	former := of(txn.Deleted, "u1", "7", "", with, "pool")
	added := of(txn.Added, "u2", "10", "", with, "pool")
	withdrawn := of(txn.Updated, "u2", "12", "5", without, "")
	withdrawn.Withdrawn = "pool"
	// The webhook has admitted u2 with the record, or with the one before it.
	admitted, admittedBefore := added, added
	admitted.Marker, admittedBefore.Marker = "5", "3"
	next := of(txn.Added, "u3", "30", "", with, "pool")
	end, neverRestored := of(txn.Deleted, "u2", "20", "5", without, ""), of(txn.Deleted, "u2", "20", "", without, "")
	saved := record.Record{Node: "node-1", Labels: with, Machine: "pool", Revision: revision.MustParse("5"), Source: "u1"}
	noted := saved
	noted.Restored = record.Restoration{UID: "u2", Revision: revision.MustParse("11")}
	ofAgents := saved // as u2 registered it
	ofAgents.Source, ofAgents.Revision = "u2", revision.MustParse("10")
	last := withdrawn
	last.Revision = revision.MustParse("20")
	floor := preserve.Forgotten("node-1", nil, nil, revision.MustParse("5"))
	earlier := func(t txn.Transaction) txn.Transaction {
		t.Revision, t.Ahead = revision.MustParse("100"+t.Revision.String()), true
		return t
	}
	notedEarlier := saved
	notedEarlier.Restored = record.Restoration{UID: "u2", Revision: revision.MustParse("1009")}
	for name, tc := range map[string]struct {
		end       txn.Transaction
		record    *record.Record
		waiting   []txn.Transaction
		first     []txn.Transaction // transactions before the end
		overruled labels.Keys       // in the end
		withdrawn labels.Keys
	}{
		"the record notes it":                       {end, &noted, []txn.Transaction{former, added}, nil, "", ""},
		"noted, agents have withdrawn":              {end, &noted, []txn.Transaction{former, added, withdrawn}, nil, "", "pool"},
		"and the record is of that":                 {end, &ofAgents, []txn.Transaction{added, withdrawn}, nil, "", "pool"},
		"by their last write":                       {end, &ofAgents, []txn.Transaction{last}, nil, "", "pool"},
		"not noted, by their last write":            {end, &saved, []txn.Transaction{added, last}, nil, "", "pool"},
		"restored, not noted":                       {end, &saved, []txn.Transaction{former, added}, nil, "pool", ""},
		"restored, agents have withdrawn":           {end, &saved, []txn.Transaction{added, withdrawn}, nil, "", "pool"},
		"restored, nothing waits":                   {end, &saved, nil, nil, "", ""},
		"came with the marker":                      {end, &saved, []txn.Transaction{former, admitted}, []txn.Transaction{former}, "pool", ""},
		"came with it, not recorded":                {end, &saved, []txn.Transaction{former}, []txn.Transaction{former}, "", ""},
		"came with another, restored":               {end, &saved, []txn.Transaction{former, admittedBefore}, nil, "pool", ""},
		"restored, recorded twice":                  {end, &saved, []txn.Transaction{former, added, admitted}, nil, "pool", ""},
		"came with it, and is noted":                {end, &noted, []txn.Transaction{former, admitted}, nil, "", ""},
		"never restored":                            {neverRestored, &saved, []txn.Transaction{former, added}, []txn.Transaction{former}, "pool", ""},
		"no record":                                 {end, nil, []txn.Transaction{former, added}, []txn.Transaction{former}, "pool", ""},
		"forgotten":                                 {end, &floor, []txn.Transaction{former, added}, []txn.Transaction{former}, "pool", ""},
		"an earlier history, as the record's":       {end, &notedEarlier, []txn.Transaction{earlier(added)}, nil, "pool", ""},
		"an earlier history, and it is noted since": {end, &noted, []txn.Transaction{earlier(added)}, nil, "", ""},
		"an earlier history of a former one":        {neverRestored, &saved, []txn.Transaction{earlier(former), added}, []txn.Transaction{earlier(former)}, "pool", ""},
		"the next one waits, too":                   {end, nil, []txn.Transaction{added, next}, nil, "pool", ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := preserve.Ending(tc.end, tc.record, tc.waiting)
			last := len(all) - 1
			assert.Equal(t, tc.first, append([]txn.Transaction(nil), all[:last]...))
			want := tc.end
			want.Overruled, want.Withdrawn = tc.overruled, tc.withdrawn
			got := preserve.MergedEnd(all[last], tc.record)
			got.States = nil // see TestEndEqualsTheQueueOfARestoredNode
			assert.Equal(t, want, got)
		})
	}
}

// A write of the end can conflict, and the record is another one then. In this one the agents have
// taken pool over since the addition. A person then set it again, while u2 was being deleted.
func TestEndIsMergedForTheRecordThatItChanges(t *testing.T) {
	of := func(typ txn.Type, rv string, unclear labels.Keys) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: "u2", Revision: revision.MustParse(rv), Labels: set{"pool": "a"}, Unclear: unclear}
	}
	added, end := of(txn.Added, "1", "pool"), of(txn.Deleted, "8", "")
	all := preserve.Ending(end, nil, []txn.Transaction{added})
	require.Len(t, all, 1)
	first := preserve.Decide(all[0], nil, nil, labels.Policy{})
	require.Equal(t, preserve.Save, first.Action)
	assert.Equal(t, labels.Keys("pool"), first.Record.Unclear, "without a record only the addition shows who set it")
	stored := &record.Record{Node: "node-1", Labels: set{"pool": "a"}, Machine: "pool", Source: "u2", Revision: revision.MustParse("5")}
	d := preserve.Decide(all[0], stored, nil, labels.Policy{})
	require.Equal(t, preserve.Save, d.Action)
	assert.Empty(t, d.Record.Machine)
	assert.Empty(t, d.Record.Unclear, "the record includes the addition")
	assert.Equal(t, labels.Keys("pool"), d.Record.Overruled)
}

// TestEndingEqualsTheQueue: the end of a noted incarnation leaves the record that its pending
// transactions would leave in order, whatever users and agents have done.
func TestEndingEqualsTheQueue(t *testing.T) {
	for seed := range uint64(2000) {
		choices := rand.New(rand.NewPCG(seed, 0))
		state := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "u1", Revision: revision.MustParse("10"), Labels: set{"a": "1", "b": "1"}, Machine: "a,b"}
		saved := record.Record{Node: "node-1", Labels: state.Labels, Machine: state.Machine, Revision: state.Revision, Source: "u1"}
		var waiting []txn.Transaction
		for at := range 1 + choices.IntN(5) {
			state = edited(choices, state, revision.MustParse(strconv.Itoa(11+at)))
			waiting = append(waiting, state)
		}
		end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "u1", Revision: revision.MustParse("30"), Labels: state.Labels, Machine: state.Machine, ByProcessor: true}
		all := append(slices.Clone(waiting), end)
		want := after(saved, all)
		ended := preserve.Ending(end, &saved, waiting)
		assert.Equal(t, want, after(saved, ended), "seed %d: %+v", seed, all)
		require.Equal(t, want, after(saved, append(ended, all...)), "seed %d: they are applied later: %+v", seed, all)
	}
}

// edited returns the next state of a node, in which a user or an agent has set or removed a
// label, as a watcher records it.
func edited(choices *rand.Rand, before txn.Transaction, at revision.Revision) txn.Transaction {
	next := before
	next.Revision, next.Labels, next.Withdrawn, next.Overruled = at, maps.Clone(before.Labels), "", ""
	key := string(rune('a' + choices.IntN(3)))
	byAgent, machine := choices.IntN(2) == 0, labels.Keys(key)
	_, isThere := before.Labels[key]
	switch isOf := before.Machine.Set()[key]; {
	case isThere && choices.IntN(2) == 0 && byAgent && isOf:
		delete(next.Labels, key)
		next.Machine, next.Withdrawn = before.Machine.Without(machine), machine
	case isThere && choices.IntN(2) == 0:
		delete(next.Labels, key)
		next.Machine = before.Machine.Without(machine)
		if isOf {
			next.Overruled = machine
		}
	case byAgent:
		next.Labels[key], next.Machine = at.String(), before.Machine.Union(machine)
	default:
		next.Labels[key], next.Machine = at.String(), before.Machine.Without(machine)
	}
	return next
}

// after returns the labels of a record after some transactions.
func after(r record.Record, all []txn.Transaction) labels.Side {
	return afterUnder(labels.Policy{}, r, all)
}

// afterUnder is like after, under a policy.
func afterUnder(policy labels.Policy, r record.Record, all []txn.Transaction) labels.Side {
	for _, t := range all {
		if d := preserve.Decide(t, &r, nil, policy); d.Action == preserve.Save {
			r = d.Record
		}
	}
	return preserve.Saved(r)
}
