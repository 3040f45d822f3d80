package preserve_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// The next incarnation gets the labels that a user set, whatever is recorded late about former
// incarnations.
func TestDecideKeepsUserRecordUntilNextIncarnation(t *testing.T) {
	g := newGenerator(t)
	byUser := set{"rack": "given"}
	for range rounds {
		r := preserve.UserRecord("node-1", labels.Side{Labels: byUser}, revision.Of(strconv.Itoa(12+1+g.IntN(2)))) // the generator's resourceVersions and markers are before it
		late := g.transaction()
		require.Equal(t, preserve.Nothing, preserve.Decide(late, &r, nil, replaceAll).Action, "%+v", late)

		next := nodeview.Node{UID: "next", Revision: revision.MustParse("20"), Labels: set{}}
		tx := txn.Transaction{Type: txn.Added, Node: "node-1", UID: next.UID, Revision: next.Revision, FoundsRecord: g.IntN(2) == 0}
		d := preserve.Decide(tx, &r, &next, replaceAll)
		require.Equal(t, preserve.Restore, d.Action)
		require.Equal(t, byUser, d.Labels)
		restored, live := apply(d, &r, &next)
		require.Equal(t, preserve.Nothing, preserve.Decide(late, restored, live, replaceAll).Action, "%+v", late)
	}
}
