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

// noteOf returns the record after the note of a restore onto b. The queue has two states of it.
func noteOf(t *testing.T, r record.Record, came, later, live has, overruled labels.Keys) record.Record {
	t.Helper()
	state := func(typ txn.Type, rv string, h has) txn.Transaction {
		return txn.Transaction{
			Type: typ, Node: "node-1", UID: "b", Revision: revision.MustParse(rv), Marker: "9", Labels: h.labels, Machine: h.machine, Unclear: h.unclear,
		}
	}
	updated := state(txn.Updated, "13", later)
	updated.Overruled = overruled
	n := &nodeview.Node{Name: "node-1", UID: "b", Revision: revision.MustParse("14"), Labels: live.labels, Marker: "9"}
	n.Machine, n.Unclear = live.machine, live.unclear
	r.Node, r.Revision, r.Source = "node-1", revision.MustParse("9"), "a"
	steps := preserve.Plan(preserve.WithQueuedEdits([]txn.Transaction{state(txn.Added, "12", came), updated}), &r, n, withPreserved)
	require.NotEmpty(t, steps)
	require.Equal(t, preserve.Save, steps[0].Action)
	return steps[0].Record
}

// The record notes a restore late. The owners of the labels follow from the state that the Node
// came with, and from the live one. Only the queue shows the keys that users overruled in between.
func TestNoteKnowsWhatUsersOverruledInTheQueue(t *testing.T) {
	t.Parallel()
	bare, pool := set{"rack": "r1"}, set{"rack": "r1", "pool": "a"}
	tainted := set{"rack": "r1", string(taint): "y"}
	saved := record.Record{Labels: pool, Machine: "pool"}
	for name, tc := range map[string]struct {
		r                          record.Record
		came, later, live          has
		reported                   labels.Keys
		machine, unclear, overrule labels.Keys
	}{
		"a taint that a user removed and set again": {
			record.Record{Labels: bare}, has{labels: tainted, machine: taint}, has{labels: bare}, has{labels: tainted, unclear: taint}, taint, "", taint, taint,
		},
		"a taint that a watcher does not keep": {
			record.Record{Labels: bare}, has{labels: tainted, machine: taint}, has{labels: bare}, has{labels: bare}, "", "", "", taint,
		},
		"a user set what the former agents had set":   {saved, has{labels: bare}, has{labels: pool}, has{labels: pool}, "", "", "", ""},
		"the API server forgot the setter of a label": {record.Record{Labels: bare}, has{labels: pool, machine: "pool"}, has{labels: pool, unclear: "pool"}, has{labels: pool, unclear: "pool"}, "", "pool", "", ""},
		"a user removed a copied label":               {saved, has{labels: pool}, has{labels: bare}, has{labels: bare}, "", "", "", "pool"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := noteOf(t, tc.r, tc.came, tc.later, tc.live, tc.reported)
			assert.Equal(t, tc.machine, r.Machine)
			assert.Equal(t, tc.unclear, r.Unclear)
			assert.Equal(t, tc.overrule, r.Overruled)
		})
	}
}
