package byhand_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

// The node returned between the reads of the Node and of its record, which notes a restore: an edit
// for an absent node would take the record from the live one.
func TestSetChangesNoRecordOfANodeThatCameBack(t *testing.T) {
	r := record.Record{
		Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("50"), Source: "a",
		Restored: record.Restoration{UID: "b", Revision: revision.MustParse("101")},
	}
	n := &inspect.Node{Name: "node-1", Now: revision.MustParse("100"), Saved: inspect.Saved{Record: &r}}
	_, err := byhand.Edited(&byhand.Edit{Cluster: &inspect.Cluster{}}, n)
	require.ErrorIs(t, err, byhand.ErrChanged)
	n.Now = revision.MustParse("101")
	after, err := byhand.Edited(&byhand.Edit{Cluster: &inspect.Cluster{}}, n)
	require.NoError(t, err)
	assert.Equal(t, n.Now, after.Revision)
}
