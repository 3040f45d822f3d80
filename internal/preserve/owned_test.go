package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

func TestOwned(t *testing.T) {
	for name, tc := range map[string]struct {
		r      *record.Record
		uid    types.UID
		marker string
		want   bool
	}{
		"the source":                         {saved(), "source", "", true},
		"the source, another marker":         {saved(), "source", "99", true},
		"the source, never restored":         {neverRestored(), "source", "", true},
		"the restored":                       {saved(), "restored", "", true},
		"the restored, another marker":       {saved(), "restored", "99", true},
		"a stranger with the marker":         {saved(), "stranger", "100", true},
		"a stranger, marker, never restored": {neverRestored(), "stranger", "100", true},
		"a stranger":                         {saved(), "stranger", "", false},
		"a stranger, never restored":         {neverRestored(), "stranger", "", false},
		"a stranger, marker of another save": {saved(), "stranger", "99", false},
		"a stranger, marker of the restore":  {saved(), "stranger", "200", false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, preserve.Owned(*tc.r, tc.uid, tc.marker))
		})
	}
}

func TestNotedChangesOnlyTheRestoreIfLabelsAreEqual(t *testing.T) {
	r := saved()
	got := preserve.Noted(*r, nodeview.Node{}, nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: same, Marker: "100"}, labels.MachineBound{})
	want := saved()
	want.Restored = record.Restoration{UID: "stranger", Revision: revision.MustParse("300")}
	assert.Equal(t, *want, got)
	assert.Equal(t, saved(), r, "the argument stays as it is")
}

func TestNotedSavesDifferentLabelsOfTheNode(t *testing.T) {
	got := preserve.Noted(*saved(), nodeview.Node{}, nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: changed, Marker: "100"}, labels.MachineBound{})
	assert.Equal(t, record.Record{Node: "node-1", Labels: changed, Revision: revision.MustParse("300"), Source: "stranger"}, got)
}

func TestActionsHaveNames(t *testing.T) {
	assert.Equal(t, "nothing", preserve.Nothing.String())
	assert.Equal(t, "save", preserve.Save.String())
	assert.Equal(t, "restore", preserve.Restore.String())
	assert.Equal(t, "unknown", preserve.Action(9).String())
	assert.Equal(t, preserve.Nothing, preserve.Decision{}.Action, "the zero value writes nothing")
}
