package protection_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/processor/protection"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

type set = map[string]string

// In all other cases the final labels have been stored already.
func TestEndOfANodeIsKeptIfItWasEditedWhileItWasBeingDeleted(t *testing.T) {
	at := func(uid types.UID, resourceVersion, rack string, isEnding bool) *nodeview.Node {
		n := &nodeview.Node{Name: "node-1", UID: uid, Revision: revision.Of(resourceVersion), Labels: set{"rack": rack}}
		if isEnding {
			n.DeletedAt = time.Now()
		}
		return n
	}
	unrestored := at("a", "2", "r2", false)
	unrestored.Edited = "rack"
	live, ending, edited := at("a", "1", "r1", false), at("a", "3", "r2", true), at("a", "4", "r3", true)
	for name, tc := range map[string]struct {
		states []*nodeview.Node
		want   []string // by resourceVersion
	}{
		"not edited":               {[]*nodeview.Node{live, at("a", "2", "r1", true), nil}, nil},
		"edited before, no record": {[]*nodeview.Node{live, at("a", "2", "r2", false), ending, nil}, []string{"3"}},
		"edited, not restored":     {[]*nodeview.Node{live, unrestored, nil}, []string{"2"}},
		"edited":                   {[]*nodeview.Node{live, ending, edited, nil}, []string{"4"}},
		"not gone yet":             {[]*nodeview.Node{live, ending, edited}, nil},
		"edited and a heartbeat":   {[]*nodeview.Node{live, ending, edited, at("a", "5", "r3", true), nil}, []string{"5"}},
		"perhaps edited unseen":    {[]*nodeview.Node{ending, nil}, []string{"3"}},
		"its end is not seen":      {[]*nodeview.Node{ending, edited, at("b", "9", "r1", false)}, []string{"4"}},
		"two of them":              {[]*nodeview.Node{ending, at("b", "9", "r1", true), nil}, []string{"3", "9"}},
		"the next one is no edit":  {[]*nodeview.Node{live, at("b", "9", "r9", false), nil}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, end := range protection.LateEnds("node-1", tc.states...) {
				assert.Equal(t, txn.Deleted, end.Type)
				got = append(got, end.Revision.String())
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

// The final state of a Node does not show what people have removed.
func TestLateEndHasWhatWasRemovedBeforeTheRestore(t *testing.T) {
	at := func(uid types.UID, resourceVersion string, own set) *nodeview.Node {
		return &nodeview.Node{Name: "node-1", UID: uid, Revision: revision.Of(resourceVersion), Labels: own}
	}
	came, removed := at("a", "1", set{"rack": "r1", "team": "a"}), at("a", "2", set{"team": "a"})
	ends := protection.LateEnds("node-1", came, removed, nil, at("b", "5", set{"rack": "r1"}), nil)
	require.Len(t, ends, 1, "the next one is not edited")
	assert.Equal(t, labels.Keys("rack"), ends[0].Edited)
	assert.Empty(t, protection.LateEnds("node-1", came, removed, at("b", "5", set{})), "its end is not seen")
}
