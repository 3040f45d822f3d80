package inspect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

type set = map[string]string

// TestForecastHasEachTakeEffectBeforeTheNext: a node is edited, deleted, and back, and edited before its restore.
func TestForecastHasEachTakeEffectBeforeTheNext(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Version: "10", Source: "first"}
	event := func(typ txn.Type, uid types.UID, rv, rack string) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: uid, ResourceVersion: rv, Labels: set{"rack": rack}}
	}
	live := &preserve.Node{UID: "second", ResourceVersion: "22", Labels: set{"rack": "own"}}
	decisions := inspect.Forecast([]txn.Transaction{
		event(txn.Updated, "first", "11", "r2"),
		event(txn.Deleted, "first", "12", "r2"),
		event(txn.Added, "second", "21", ""),
		event(txn.Updated, "second", "22", "own"),
	}, r, live, "30", labels.Policy{Mode: labels.Replace})

	var actions []preserve.Action
	for _, d := range decisions {
		actions = append(actions, d.Action)
	}
	assert.Equal(t, []preserve.Action{preserve.Save, preserve.Save, preserve.Restore, preserve.Nothing}, actions)
	assert.Equal(t, set{"rack": "r2"}, decisions[2].Labels, "the restore is of what the first saves")
	assert.Equal(t, "10", r.Version, "the argument stays as it is")
}
