package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

const (
	taint      labels.Keys = "taint:dedicated:NoSchedule"
	annotation labels.Keys = "annotation:example.com/owner"
)

var withPreserved = labels.Policy{Mode: labels.Replace, Preserves: func(string) bool { return true }}

// nextLife returns a node's labels after an event and its return with some labels.
func nextLife(t *testing.T, seen, brings has, overruled labels.Keys) set {
	t.Helper()
	r := &record.Record{Node: "node-1", Labels: seen.labels, Machine: seen.machine, Unclear: seen.unclear, Revision: revision.MustParse("1"), Source: "a"}
	e := func(typ txn.Type, rv string, uid types.UID, now has) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: uid, Revision: revision.MustParse(rv), Labels: now.labels, Machine: now.machine, Unclear: now.unclear}
	}
	gone := e(txn.Updated, "2", "a", has{labels: set{"rack": "r1"}})
	gone.Overruled = overruled
	r, _, _ = carriedOut(t, gone, r, nil, withPreserved)
	r, _, _ = carriedOut(t, e(txn.Deleted, "3", "a", has{labels: set{"rack": "r1"}}), r, nil, withPreserved)
	n := &nodeview.Node{UID: "b", Revision: revision.MustParse("4"), Labels: brings.labels, Ownership: agents.Ownership{Machine: brings.machine, Unclear: brings.unclear}}
	_, n, _ = carriedOut(t, e(txn.Added, "4", "b", brings), r, n, withPreserved)
	return n.Labels
}

// A watcher without the flag, as during a rollout, sees only labels.
func TestOnlyWatcherThatSawRemovalReportsIt(t *testing.T) {
	for _, key := range []labels.Keys{taint, annotation} {
		own := set{"rack": "r1", string(key): "gpu"}
		for name, had := range map[string]has{"the machine's": {labels: own, machine: key}, "unclear": {labels: own, unclear: key}} {
			brings := has{labels: set{string(key): "gpu"}, machine: key}
			assert.Equal(t, own, nextLife(t, had, brings, ""), "%s %s, and no watcher saw the removal", name, key)
			assert.Equal(t, set{"rack": "r1"}, nextLife(t, had, brings, key), "%s %s, and a watcher saw a user remove it", name, key)
		}
	}
}

// TestChangedTaint: its value is the user's if a watcher saw that no agent wrote it in the
// meantime.
func TestChangedTaint(t *testing.T) {
	for saw, want := range map[labels.Keys]string{taint: "mine", "": "gpu"} {
		l := life{t: t, policy: withPreserved}
		l.event(txn.Added, "a", has{labels: set{string(taint): "gpu"}, machine: taint})
		l.overruled = saw
		l.event(txn.Updated, "a", has{labels: set{string(taint): "mine"}, unclear: taint})
		l.overruled = ""
		l.event(txn.Deleted, "a", has{labels: set{string(taint): "mine"}, unclear: taint})
		d := l.event(txn.Added, "b", has{labels: set{string(taint): "gpu"}, machine: taint})
		require.Equal(t, preserve.Restore, d.Action)
		assert.Equal(t, set{string(taint): want}, d.Labels)
	}
}

// The taint is still the machine's after kube-controller-manager has written the list: the next
// machine need not register with it, and if it does, its own value applies.
func TestTaintRegisteredByKubelet(t *testing.T) {
	for name, tc := range map[string]struct{ brings, want set }{
		"another value": {set{string(taint): "cpu"}, set{string(taint): "cpu"}},
		"none":          {set{}, set{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := life{t: t, policy: withPreserved}
			l.event(txn.Added, "a", has{labels: set{string(taint): "gpu"}, machine: taint})
			l.event(txn.Updated, "a", has{labels: set{string(taint): "gpu", "rack": "r1"}, unclear: taint})
			l.event(txn.Deleted, "a", has{labels: set{string(taint): "gpu", "rack": "r1"}, unclear: taint})
			d := l.event(txn.Added, "b", has{labels: tc.brings, machine: taint.Where(func(key string) bool { return tc.brings[key] != "" })})
			tc.want["rack"] = "r1"
			assert.Equal(t, tc.want, d.Labels)
		})
	}
}

// The keys stay as they are, although the record has them.
func TestWithoutTheFlagOnlyLabelsAreTouched(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: set{"rack": "r1", string(taint): "gpu", string(annotation): "a"}, Revision: revision.MustParse("1"), Source: "a", Ended: true}
	n := &nodeview.Node{UID: "b", Revision: revision.MustParse("2"), Labels: set{}}
	d := preserve.Decide(txn.Transaction{Type: txn.Added, Node: "node-1", UID: "b", Revision: revision.MustParse("2")}, r, n, replaceAll)
	assert.Equal(t, set{"rack": "r1"}, d.Labels)
}

// The processor sees the change when the node ends, but not who made it. The machine's own value
// stays.
func TestChangedTaintOfProtectedNode(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: set{string(taint): "gpu"}, Machine: taint, Revision: revision.MustParse("1"), Source: "a"}
	end := txn.Transaction{
		Type: txn.Deleted, Node: "node-1", UID: "a", Revision: revision.MustParse("2"), Labels: set{string(taint): "mine"}, Unclear: taint, ByProcessor: true,
	}
	r, _, _ = carriedOut(t, end, r, nil, withPreserved)
	n := &nodeview.Node{UID: "b", Revision: revision.MustParse("3"), Labels: set{string(taint): "cpu"}, Ownership: agents.Ownership{Machine: taint}}
	d := preserve.Decide(txn.Transaction{Type: txn.Added, Node: "node-1", UID: "b", Revision: revision.MustParse("3"), Labels: n.Labels, Machine: taint}, r, n, withPreserved)
	assert.Equal(t, set{string(taint): "cpu"}, d.Labels)
}

// The taint was removed by a user, unless a watcher has recorded that agents may have removed it.
func TestRemovedTaintOfProtectedNode(t *testing.T) {
	for name, tc := range map[string]struct{ withdrawn, overruled labels.Keys }{
		"no watcher saw it":          {"", taint},
		"a watcher saw agents write": {taint, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &record.Record{Node: "node-1", Labels: set{string(taint): "gpu"}, Machine: taint, Revision: revision.MustParse("1"), Source: "a"}
			removal := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "a", Revision: revision.MustParse("2"), Labels: set{}, Withdrawn: tc.withdrawn}
			end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "a", Revision: revision.MustParse("3"), Labels: set{}, ByProcessor: true}
			all := preserve.Ending(end, r, []txn.Transaction{removal})
			require.Len(t, all, 1)
			r, _, _ = carriedOut(t, all[0], r, nil, withPreserved)
			assert.Equal(t, tc.overruled, r.Overruled)
		})
	}
}

// The webhook restored the labels of a Node. Before the record noted that, a user removed a taint that
// agents had set, and set it again. Only the queue shows the removal.
func TestNoteKnowsWhatUsersOverruledInTheQueue(t *testing.T) {
	t.Parallel()
	r := record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("9"), Source: "a"}
	added := txn.Transaction{
		Type: txn.Added, Node: "node-1", UID: "b", Revision: revision.MustParse("12"), Labels: set{"rack": "r1", string(taint): "y"}, Machine: taint, Marker: "9",
	}
	removed := txn.Transaction{
		Type: txn.Updated, Node: "node-1", UID: "b", Revision: revision.MustParse("13"), Labels: set{"rack": "r1"}, Overruled: taint, Marker: "9",
	}
	n := &nodeview.Node{Name: "node-1", UID: "b", Revision: revision.MustParse("14"), Labels: added.Labels, Marker: "9"}
	n.Unclear = taint
	steps := preserve.Plan(preserve.WithQueuedEdits([]txn.Transaction{added, removed}), &r, n, withPreserved)
	require.NotEmpty(t, steps)
	require.Equal(t, preserve.Save, steps[0].Action)
	assert.Empty(t, steps[0].Record.Machine, "the user's taint outlives the machine")
	assert.Equal(t, taint, steps[0].Record.Overruled)
}
