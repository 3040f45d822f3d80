package inspect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

type set = map[string]string

// TestForecastHasEachTakeEffectBeforeTheNext: a node is edited, deleted, and back, and edited before its restore.
func TestForecastHasEachTakeEffectBeforeTheNext(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("10"), Source: "first"}
	event := func(typ txn.Type, uid types.UID, rv, rack string) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: uid, Revision: revision.Of(rv), Labels: set{"rack": rack}}
	}
	n := inspect.Node{Name: "node-1", Saved: inspect.Saved{Record: r}, Live: nodes.Metadata("node-1")}
	n.Live.UID, n.Live.ResourceVersion, n.Live.Labels = "second", "22", set{"rack": "own"}
	for _, t := range []txn.Transaction{event(txn.Updated, "first", "11", "r2"), event(txn.Deleted, "first", "12", "r2")} {
		n.Pending = append(n.Pending, inspect.Pending{Transaction: t})
	}
	decisions := n.Forecast(labels.Policy{Mode: labels.Replace}, event(txn.Added, "second", "21", ""), event(txn.Updated, "second", "22", "own"))

	var actions []preserve.Action
	for _, d := range decisions {
		actions = append(actions, d.Action)
	}
	assert.Equal(t, []preserve.Action{preserve.Save, preserve.Save, preserve.Restore, preserve.Nothing}, actions)
	assert.Equal(t, set{"rack": "r2"}, decisions[2].Labels, "the restore is of what the first saves")
	assert.Equal(t, "10", r.Revision.String(), "the argument stays as it is")
}

func TestForecastGoesByTheFloor(t *testing.T) {
	floor := preserve.Forgotten("node-1", nil, revision.MustParse("20"))
	n := inspect.Node{Name: "node-1", Saved: inspect.ParseSaved(floor.ConfigMap("ns"))}
	assert.False(t, n.Known(), "a forgotten node is not known")
	end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "first", Revision: revision.MustParse("12")}
	next := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "next", Revision: revision.MustParse("21")}
	decisions := n.Forecast(labels.Policy{Mode: labels.Replace}, end, next)
	assert.Equal(t, preserve.Nothing, decisions[0].Action)
	assert.Equal(t, preserve.Save, decisions[1].Action)
}
