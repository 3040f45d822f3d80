package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// TestEnding: node u1 has rack and pool, which its agents set. Node u2 has registered with pool,
// too, and a person has removed it since.
func TestEnding(t *testing.T) {
	of := func(typ txn.Type, uid, rv, marker string, own set, machine labels.Keys) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: types.UID(uid), Revision: revision.MustParse(rv), Marker: marker, Labels: own, Machine: machine}
	}
	with, without := set{"rack": "r1", "pool": "a"}, set{"rack": "r1"}
	former := of(txn.Deleted, "u1", "7", "", with, "pool")
	added := of(txn.Added, "u2", "10", "", with, "pool")
	withdrawn := of(txn.Updated, "u2", "12", "5", without, "")
	withdrawn.Withdrawn = "pool"
	// The webhook has answered for u2 from the record, or from one before it.
	admitted, admittedBefore := added, added
	admitted.Marker, admittedBefore.Marker = "5", "3"
	next := of(txn.Added, "u3", "30", "", with, "pool")
	end, neverRestored := of(txn.Deleted, "u2", "20", "5", without, ""), of(txn.Deleted, "u2", "20", "", without, "")
	saved := record.Record{Node: "node-1", Labels: with, Machine: "pool", Revision: revision.MustParse("5"), Source: "u1"}
	noted := saved
	noted.Restored = record.Restoration{UID: "u2", Revision: revision.MustParse("11")}
	floor := preserve.Forgotten("node-1", nil, revision.MustParse("5"))
	for name, tc := range map[string]struct {
		end       txn.Transaction
		record    *record.Record
		waiting   []txn.Transaction
		first     []txn.Transaction // what comes before the end
		overruled labels.Keys       // in the end
		withdrawn labels.Keys
	}{
		"the record notes it":             {end, &noted, []txn.Transaction{former, added}, nil, "", ""},
		"restored, not noted":             {end, &saved, []txn.Transaction{former, added}, nil, "pool", ""},
		"restored, agents have withdrawn": {end, &saved, []txn.Transaction{added, withdrawn}, nil, "", "pool"},
		"restored, nothing waits":         {end, &saved, nil, nil, "", ""},
		"came with the marker":            {end, &saved, []txn.Transaction{former, admitted}, []txn.Transaction{former}, "pool", ""},
		"came with it, not recorded":      {end, &saved, []txn.Transaction{former}, []txn.Transaction{former}, "", ""},
		"came with another, restored":     {end, &saved, []txn.Transaction{former, admittedBefore}, nil, "pool", ""},
		"restored, recorded twice":        {end, &saved, []txn.Transaction{former, added, admitted}, nil, "pool", ""},
		"came with it, and is noted":      {end, &noted, []txn.Transaction{former, admitted}, nil, "", ""},
		"never restored":                  {neverRestored, &saved, []txn.Transaction{former, added}, []txn.Transaction{former}, "pool", ""},
		"no record":                       {end, nil, []txn.Transaction{former, added}, []txn.Transaction{former}, "pool", ""},
		"forgotten":                       {end, &floor, []txn.Transaction{former, added}, []txn.Transaction{former}, "pool", ""},
		"the next one waits, too":         {end, nil, []txn.Transaction{added, next}, nil, "pool", ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := preserve.Ending(tc.end, tc.record, tc.waiting)
			last := len(all) - 1
			assert.Equal(t, tc.first, append([]txn.Transaction(nil), all[:last]...))
			want := tc.end
			want.Overruled, want.Withdrawn = tc.overruled, tc.withdrawn
			assert.Equal(t, want, all[last])
		})
	}
}
