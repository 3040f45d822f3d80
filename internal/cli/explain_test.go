package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// TestExplainOfANodeThatOnlyTransactionsKnow: the node was deleted before anything of it was saved.
func TestExplainOfANodeThatOnlyTransactionsKnow(t *testing.T) {
	n := &inspect.Node{Name: "node-1", Pending: []inspect.Pending{{
		Transaction: txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "u", Revision: revision.MustParse("7"), Labels: map[string]string{"rack": "r1"}},
	}}}
	e := newExplained(n, &inspect.Story{}, labels.Policy{})
	assert.Equal(t, inspect.Away, e.State)
	assert.Equal(t, "There is no Node of this name, and nothing is saved of it: only the pending transactions are known.", e.Summary)
}
