package txn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

func TestHappened(t *testing.T) {
	of := func(typ txn.Type) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: "a", Revision: revision.MustParse("100")}
	}
	for name, tc := range map[string]struct {
		transaction txn.Transaction
		live        *nodeview.Node
		now         string
		want        bool
	}{
		"just now":                            {of(txn.Updated), live("a", "100"), "100", true},
		"and more since":                      {of(txn.Updated), live("a", "120"), "130", true},
		"gone since":                          {of(txn.Updated), nil, "130", true},
		"replaced since":                      {of(txn.Updated), live("b", "120"), "130", true},
		"deleted":                             {of(txn.Deleted), nil, "100", true},
		"deleted and replaced":                {of(txn.Deleted), live("b", "120"), "130", true},
		"yet to come":                         {of(txn.Updated), live("a", "90"), "95", false},
		"yet to come, of one that is gone":    {of(txn.Added), nil, "95", false},
		"yet to come, of another":             {of(txn.Deleted), live("b", "90"), "99", false},
		"the node is older":                   {of(txn.Updated), live("a", "90"), "1000000090", false},
		"the node was never deleted":          {of(txn.Deleted), live("a", "120"), "130", false},
		"added, and is older":                 {of(txn.Added), live("a", "99"), "130", false},
		"by length: yet to come":              {of(txn.Updated), nil, "99", false},
		"resourceVersions that say nothing":   {of(txn.Updated), live("a", "x"), "x", true},
		"of another that is older: who knows": {of(txn.Deleted), live("b", "90"), "130", true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, txn.Happened(tc.transaction, tc.live, revision.Of(tc.now)))
		})
	}
}

func live(uid types.UID, resourceVersion string) *nodeview.Node {
	return &nodeview.Node{Name: "node-1", UID: uid, Revision: revision.Of(resourceVersion)}
}
