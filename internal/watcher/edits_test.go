package watcher_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

// The end of a Node has what users have edited in all states that the watcher saw, and what its last
// state shows.
func TestEndHasWhatUsersHaveEdited(t *testing.T) {
	c := newCluster(t)
	c.watch(t)
	n := c.addNode(t, "node", set{"rack": "r7", "team": "blue", "tier": "gold"})
	c.edit(t, n, func(n *corev1.Node) { n.Labels["rack"] = "r8" })
	c.edit(t, n, func(n *corev1.Node) { n.Labels["ticket"] = "4711" })
	c.edit(t, n, func(n *corev1.Node) { delete(n.Labels, "team") })
	require.NoError(t, c.Delete(t.Context(), n))
	next := c.addNode(t, "node", set{"rack": "r7"})
	require.NoError(t, c.Delete(t.Context(), next))

	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		ends := map[types.UID]labels.Keys{}
		for _, tx := range queued(t, c, c.transactions, n.Name) {
			if tx.Type == txn.Deleted {
				ends[tx.UID] = tx.Edited
			} else {
				assert.Empty(ct, tx.Edited, "%s", tx.Type)
			}
		}
		assert.Equal(ct, map[types.UID]labels.Keys{n.UID: "rack,team,ticket", next.UID: ""}, ends)
	}, patience, 20*time.Millisecond)
}

func TestEditsOfEachIncarnation(t *testing.T) {
	came, removed, gone := state("a", "1", set{"rack": "r7", "team": "blue"}), state("a", "2", set{"rack": "r7"}), state("a", "9", set{})
	other := state("b", "5", set{"rack": "r7"})
	restored := state("a", "3", set{"rack": "r7", "team": "blue", labels.Marker: "1"})
	restored.Edited = labels.Marker
	shown := state("a", "4", set{"rack": "r7", "ticket": "1"})
	shown.Edited = "ticket"
	for name, tc := range map[string]struct {
		states []*nodeview.Node
		want   []labels.Keys
	}{
		"not edited":          {[]*nodeview.Node{came, nil}, []labels.Keys{""}},
		"edited":              {[]*nodeview.Node{came, removed, nil}, []labels.Keys{"team"}},
		"edited twice":        {[]*nodeview.Node{came, removed, gone, nil}, []labels.Keys{"rack,team"}},
		"edited and shown":    {[]*nodeview.Node{came, removed, shown, nil}, []labels.Keys{"team,ticket"}},
		"edited and restored": {[]*nodeview.Node{came, removed, restored, nil}, []labels.Keys{""}},
		"its end is missed":   {[]*nodeview.Node{came, removed, other, nil}, []labels.Keys{"", ""}},
		"another incarnation": {[]*nodeview.Node{came, removed, nil, other, nil}, []labels.Keys{"team", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var edits preserve.Edits
			var before *nodeview.Node
			var got []labels.Keys
			for _, after := range tc.states {
				transactions := watcher.Observer{RecordUpdates: true}.Observe(before, after, observed)
				edits.Observe(before, after, transactions)
				for _, tx := range transactions {
					if tx.Type == txn.Deleted {
						got = append(got, tx.Edited)
					}
				}
				before = after
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

// In a gap, agents may have set and removed labels, or these may have been restored.
func TestGapForgetsEdits(t *testing.T) {
	came, removed := state("a", "1", set{"rack": "r7", "team": "blue"}), state("a", "2", set{"rack": "r7"})
	removed.Edited = "rack"
	o := watcher.Observer{RecordUpdates: true}
	for name, tc := range map[string]struct {
		observed func(edits *preserve.Edits) []txn.Transaction
		want     labels.Keys
	}{
		"no gap": {func(edits *preserve.Edits) []txn.Transaction {
			end := o.Observe(removed, nil, observed)
			edits.Observe(removed, nil, end)
			return end
		}, "rack,team"},
		"a gap before the end": {func(edits *preserve.Edits) []txn.Transaction {
			later := *removed
			later.Revision = revision.MustParse("9")
			edits.ObserveAfterGap(removed, o.ObserveAfterGap(removed, &later, observed))
			end := o.Observe(&later, nil, observed)
			edits.Observe(&later, nil, end)
			return end
		}, "rack"},
		"the end in a gap": {func(edits *preserve.Edits) []txn.Transaction {
			end := o.ObserveAfterGap(removed, nil, observed)
			edits.ObserveAfterGap(removed, end)
			return end
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var edits preserve.Edits
			edits.Observe(came, removed, o.Observe(came, removed, observed))
			end := tc.observed(&edits)
			require.Len(t, end, 1)
			assert.Equal(t, tc.want, end[0].Edited)
		})
	}
}
