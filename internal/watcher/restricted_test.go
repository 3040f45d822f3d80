package watcher_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

const role = "node-role.kubernetes.io/worker"

// The machine must be identified while it exists.
func TestNewRestrictedLabelDoesNotWait(t *testing.T) {
	o := watcher.Observer{RecordUpdates: true}
	for name, tc := range map[string]struct {
		before, after set
		machine       bool
		want          bool
	}{
		"the first":       {set{"rack": "r1"}, set{"rack": "r1", role: ""}, false, true},
		"the agents' own": {set{"rack": "r1"}, set{"rack": "r1", role: ""}, true, false},
		"another":         {set{role: ""}, set{role: "", "node-role.kubernetes.io/db": ""}, false, true},
		"another value":   {set{role: ""}, set{role: "x"}, false, true},
		"one less":        {set{role: "", "node-role.kubernetes.io/db": ""}, set{role: ""}, false, false},
		"none":            {set{"rack": "r1"}, set{"rack": "r2"}, false, false},
	} {
		after := state("a", "6", tc.after)
		if tc.machine {
			after.Machine = role
		}
		seen := o.Observe(state("a", "5", tc.before), after, observed)
		require.Len(t, seen, 1, name)
		assert.Equal(t, tc.want, seen[0].AtOnce, name)
		later := txn.Transaction{Type: txn.Updated, UID: "a", Labels: tc.after}
		assert.Equal(t, tc.want, preserve.Merged(seen[0], later).AtOnce, "%s, superseded", name)
	}
}

// TestRecordWithoutMachineIsWrittenOnce: a former release wrote it.
func TestRecordWithoutMachineIsWrittenOnce(t *testing.T) {
	own := set{"rack": "r7", role: ""}
	for name, updates := range map[string]bool{"updates are recorded": true, "they are not": false} {
		o := watcher.Observer{RecordUpdates: updates}
		n := state("a", "5", own)
		r := record.Record{Node: "node-1", Labels: own, Revision: revision.MustParse("5"), Source: "a"}
		found := o.CatchUp(n, &r, false, observed)
		require.Len(t, found, 1, name)
		assert.Equal(t, txn.Added, found[0].Type, name)
		assert.False(t, preserve.Applied(found[0], r, labels.MachineBound{}), "%s: it is not left out as stored", name)

		n.Identity, n.IsWhole = identity.Identity{SystemUUID: "x"}, true
		d := preserve.Decide(found[0], &r, n, labels.Policy{Mode: labels.Replace})
		require.Equal(t, preserve.Save, d.Action, name)
		assert.Equal(t, record.Identity{UID: "a", Identity: identity.Identity{SystemUUID: "x"}}, d.Record.Identity)
		assert.Empty(t, o.CatchUp(n, &d.Record, false, observed), name)
		assert.True(t, preserve.Applied(found[0], d.Record, labels.MachineBound{}), name)

		r.Machine = role
		assert.Empty(t, o.CatchUp(n, &r, false, observed), "%s: the agents' own", name)
		r.Machine, r.Labels, n.Labels = "", set{"rack": "r7"}, set{"rack": "r7"}
		assert.Empty(t, o.CatchUp(n, &r, false, observed), "%s: nothing restricted", name)
	}
}
