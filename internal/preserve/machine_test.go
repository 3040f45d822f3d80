package preserve_test

import (
	"strconv"
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

// life is a node and its record, whose transactions are applied in order.
type life struct {
	t      *testing.T
	rv     int
	record *record.Record
	node   *nodeview.Node
	policy labels.Policy // the zero value: as replaceAll

	overruled labels.Keys // keys that a watcher saw users override before the next event
}

// has is the state of a Node: some labels are set by agents, the rest by others, and agents have
// just withdrawn some.
type has struct {
	labels             set
	machine, withdrawn labels.Keys
	unclear            labels.Keys
}

func (l *life) event(typ txn.Type, uid types.UID, now has) preserve.Decision {
	l.t.Helper()
	l.rv++
	tx := txn.Transaction{
		Type: typ, Node: "node-1", UID: uid, Revision: revision.MustParse(strconv.Itoa(l.rv)), Labels: now.labels,
		Machine: now.machine, Withdrawn: now.withdrawn, Unclear: now.unclear, Overruled: l.overruled, FoundsRecord: typ == txn.Added,
	}
	if l.node == nil || l.node.UID != uid {
		l.node = &nodeview.Node{UID: uid}
	}
	l.node.Revision, l.node.Labels, l.node.Machine, l.node.Unclear = tx.Revision, tx.Labels, tx.Machine, tx.Unclear
	if typ == txn.Deleted {
		l.node = nil
	}
	policy := replaceAll
	if l.policy.Mode != "" {
		policy = l.policy
	}
	d := preserve.Decide(tx, l.record, l.node, policy)
	switch d.Action {
	case preserve.Nothing, preserve.Open:
	case preserve.Restore:
		l.rv++
		after := &nodeview.Node{UID: uid, Revision: revision.MustParse(strconv.Itoa(l.rv)), Labels: d.Labels, Marker: d.Marker, Ownership: agents.Ownership{Machine: left(l.node, d, l.node.Machine), Unclear: left(l.node, d, l.node.Unclear)}}
		again := preserve.Decide(tx, l.record, after, policy) // if the response is lost
		noted := preserve.Noted(*l.record, *l.node, *after, labels.MachineBound{})
		require.Equal(l.t, noted, again.Record)
		l.node, l.record = after, &noted
	case preserve.Save:
		l.record = &d.Record
	}
	return d
}

func TestUserEditOfAgentLabelIsKept(t *testing.T) {
	registered := has{set{"pool": "default", "zone": "a"}, "pool,zone", "", ""}
	for name, tc := range map[string]struct {
		story []has
		want  set // the labels of the next incarnation
	}{
		"nothing":                      {nil, set{"pool": "default", "zone": "b"}},
		"changed":                      {[]has{{set{"pool": "mine", "zone": "a"}, "zone", "", ""}}, set{"pool": "mine", "zone": "b"}},
		"removed":                      {[]has{{set{"zone": "a"}, "zone", "", ""}}, set{"zone": "b"}},
		"changed, then removed":        {[]has{{set{"pool": "mine", "zone": "a"}, "zone", "", ""}, {set{"zone": "a"}, "zone", "", ""}}, set{"zone": "b"}},
		"removed, and set by an agent": {[]has{{set{"zone": "a"}, "zone", "", ""}, registered}, set{"pool": "default", "zone": "b"}},
		"removed, and set by a user":   {[]has{{set{"zone": "a"}, "zone", "", ""}, {set{"pool": "mine", "zone": "a"}, "zone", "", ""}}, set{"pool": "mine", "zone": "b"}},
		"taken back by an agent":       {[]has{{set{"zone": "a"}, "zone", "pool", ""}}, set{"pool": "default", "zone": "b"}},
		"changed by an agent":          {[]has{{set{"pool": "other", "zone": "a"}, "pool,zone", "", ""}}, set{"pool": "default", "zone": "b"}},
		"its manager is forgotten": {
			[]has{{labels: set{"pool": "default", "zone": "a", "rack": "r1"}, machine: "zone", unclear: "pool"}},
			set{"pool": "default", "zone": "b", "rack": "r1"},
		},
		"all managers are forgotten": {
			[]has{{labels: set{"pool": "default", "zone": "a", "rack": "r1"}, unclear: "pool,zone"}},
			set{"pool": "default", "zone": "b", "rack": "r1"},
		},
		"changed, and then forgotten": {
			[]has{{labels: set{"pool": "mine", "zone": "a"}, machine: "zone", unclear: "pool"}},
			set{"pool": "mine", "zone": "b"},
		},
		"a user applies it, too": {
			[]has{{labels: set{"pool": "default", "zone": "a", "rack": "r1"}, machine: "pool"}},
			set{"pool": "default", "zone": "a", "rack": "r1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &life{t: t}
			l.event(txn.Added, "first", registered)
			last := registered
			for _, now := range tc.story {
				l.event(txn.Updated, "first", now)
				last = now
			}
			back := has{set{"pool": "default", "zone": "b"}, "pool,zone", "", ""}
			incarnations := []types.UID{"first", "second", "third", "fourth"}
			for i, next := range incarnations[1:] { // after the first return there are only restores
				l.event(txn.Deleted, incarnations[i], last)
				d := l.event(txn.Added, next, back)
				require.Equal(t, preserve.Restore, d.Action)
				assert.Equal(t, tc.want, d.Labels, "%s", next)
				last = has{l.node.Labels, l.node.Machine, "", ""}
			}
		})
	}
}

// Only the restore shows that the machine registers with the label.
func TestUserRemovesRestoredLabelOfAgent(t *testing.T) {
	l := &life{t: t}
	l.event(txn.Added, "first", has{labels: set{"pool": "mine"}})
	l.event(txn.Deleted, "first", has{labels: set{"pool": "mine"}})
	back := has{set{"pool": "default"}, "pool", "", ""}
	require.Equal(t, set{"pool": "mine"}, l.event(txn.Added, "second", back).Labels)
	assert.Equal(t, labels.Keys("pool"), l.record.Overruled)
	l.event(txn.Updated, "second", has{labels: set{}})
	l.event(txn.Deleted, "second", has{labels: set{}})
	assert.Empty(t, l.event(txn.Added, "third", back).Labels)
}

// TestRepairAfterOldReleases: the effect of restores on the nodes of clouds by releases without
// label ownership.
func TestRepairAfterOldReleases(t *testing.T) {
	l := &life{t: t}
	first := has{
		set{"eks.amazonaws.com/nodegroup": "blue", "karpenter.sh/initialized": "true", "node-image-version": "v1", "rack": "r7"},
		"eks.amazonaws.com/nodegroup,karpenter.sh/initialized,node-image-version", "", "",
	}
	l.event(txn.Added, "first", first)
	l.event(txn.Deleted, "first", first)
	d := l.event(txn.Added, "second", has{
		set{"eks.amazonaws.com/nodegroup": "green", "karpenter.sh/nodepool": "p", "node-image-version": "v2"},
		"eks.amazonaws.com/nodegroup,karpenter.sh/nodepool,node-image-version", "", "",
	})
	assert.Equal(t, set{"eks.amazonaws.com/nodegroup": "green", "karpenter.sh/nodepool": "p", "node-image-version": "v2", "rack": "r7"}, d.Labels)
}

func TestRecordOfSameLabelsUpdatesOwnership(t *testing.T) {
	l := &life{t: t}
	l.event(txn.Added, "first", has{labels: set{"pool": "a"}}) // by a release without label ownership
	l.event(txn.Deleted, "first", has{set{"pool": "a"}, "pool", "", ""})
	assert.Equal(t, labels.Keys("pool"), l.record.Machine)
}

func TestKeysNamedByUserBelongToUser(t *testing.T) {
	saved := labels.Side{Labels: set{"pool": "a", "zone": "a", "tier": "x", "same": "s", "rack": "r1"}, Machine: "pool,same,tier,zone", Overruled: "other"}
	edited := preserve.Edited(saved, set{"pool": "mine", "zone": "a", "same": "s", "rack": "r2"}, "pool,rack,same,tier")
	assert.Equal(t, labels.Side{Labels: set{"pool": "mine", "zone": "a", "same": "s", "rack": "r2"}, Machine: "zone", Overruled: "other,pool,same,tier"}, edited)
	userRecord := preserve.UserRecord("node-1", edited, revision.MustParse("7"))
	live := labels.Side{Labels: set{"pool": "b", "zone": "b", "tier": "y", "same": "t"}, Machine: "pool,same,tier,zone"}
	assert.Equal(t, set{"pool": "mine", "zone": "b", "same": "s", "rack": "r2"}, replaceAll.Restored(live, preserve.Saved(userRecord)))
}

// The restore is noted after a user has removed a label, so the update is older than the note.
func TestRemovalBeforeALateNote(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("5"), Source: "u1"}
	queue := []txn.Transaction{
		{Type: txn.Added, Node: "node-1", UID: "u2", Revision: revision.MustParse("10"), Labels: set{"pool": "a"}, Machine: "pool"},
		{Type: txn.Updated, Node: "node-1", UID: "u2", Revision: revision.MustParse("12"), Marker: "5", Labels: set{"rack": "r1"}},
	}
	live := &nodeview.Node{UID: "u2", Revision: revision.MustParse("12"), Labels: set{"rack": "r1"}, Marker: "5"}
	for _, tx := range queue {
		if d := preserve.Decide(tx, r, live, replaceAll); d.Action == preserve.Save {
			r = &d.Record
		}
	}
	assert.Equal(t, labels.Keys("pool"), r.Overruled)
}

// The labels were saved by a release that stored no field managers, or the API server had dropped
// these before a watcher saw the node. No label is lost for that, and none that agents set again is
// overwritten.
func TestLabelsThatAreUnclear(t *testing.T) {
	unclear := has{labels: set{"pool": "old", "rack": "r1", "zone": "a"}, unclear: "pool,rack,zone"}
	back := has{set{"pool": "new", "zone": "b"}, "pool,zone", "", ""}
	want := set{"pool": "new", "rack": "r1", "zone": "b"}

	l := &life{t: t}
	l.event(txn.Added, "first", unclear)
	l.event(txn.Deleted, "first", unclear)
	assert.Equal(t, want, l.event(txn.Added, "second", back).Labels)
	assert.Empty(t, l.record.Overruled)
	l.event(txn.Deleted, "second", has{want, "pool,zone", "", ""})
	assert.Equal(t, labels.Keys("rack"), l.record.Unclear, "the setter is still unknown")
	back.labels = set{"pool": "newer", "zone": "c"}
	assert.Equal(t, set{"pool": "newer", "rack": "r1", "zone": "c"}, l.event(txn.Added, "third", back).Labels)
}

// TestWatcherWithoutManagers records transactions between other watchers' during a rollout.
func TestWatcherWithoutManagers(t *testing.T) {
	l := &life{t: t}
	l.event(txn.Added, "first", has{set{"pool": "a", "zone": "a", "rack": "r1"}, "pool,zone", "", ""})
	l.event(txn.Updated, "first", has{labels: set{"pool": "mine", "zone": "a", "rack": "r1", "new": "n"}, unclear: "new,pool,rack,zone"})
	assert.Equal(t, labels.Keys("zone"), l.record.Machine, "as it was")
	assert.Equal(t, labels.Keys("new"), l.record.Unclear)
	l.event(txn.Deleted, "first", has{labels: set{"pool": "mine", "zone": "a", "rack": "r1", "new": "n"}, unclear: "new,pool,rack,zone"})
	d := l.event(txn.Added, "second", has{set{"pool": "b", "zone": "b", "new": "m"}, "new,pool,zone", "", ""})
	assert.Equal(t, set{"pool": "mine", "zone": "b", "rack": "r1", "new": "m"}, d.Labels)
}

// The agents find their own value, and write nothing.
func TestRestoredUnclearLabelIsNotTheUsers(t *testing.T) {
	saved := record.Record{
		Node: "node-1", Labels: set{"gpu": "A100", "rack": "r1"}, Unclear: "gpu,rack", Revision: revision.MustParse("5"), Source: "first", Ended: true,
	}
	l := &life{t: t, rv: 10, record: &saved}
	l.event(txn.Added, "second", has{labels: set{}})
	assert.Equal(t, labels.Keys("gpu,rack"), l.record.Unclear)
	l.event(txn.Updated, "second", has{labels: set{"gpu": "A100", "rack": "r1", "tier": "x"}})
	l.event(txn.Deleted, "second", has{labels: set{"gpu": "A100", "rack": "r1", "tier": "x"}})
	d := l.event(txn.Added, "third", has{labels: set{"gpu": "H100"}, machine: "gpu"})
	assert.Equal(t, set{"gpu": "H100", "rack": "r1", "tier": "x"}, d.Labels)
}

// The request has no ownership, but the processor has read the Node.
func TestManualRestoreFindsOverruledKeys(t *testing.T) {
	r := record.Record{Node: "node-1", Labels: set{"pool": "mine"}, Revision: revision.MustParse("5"), Source: "u1", Ended: true}
	n := &nodeview.Node{UID: "u2", Revision: revision.MustParse("10"), Labels: set{"pool": "default"}, Ownership: agents.Ownership{Machine: "pool"}}
	request := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "u2", Revision: n.Revision, Labels: n.Labels, Unclear: "pool"}
	d := preserve.Decide(request, &r, n, replaceAll)
	require.Equal(t, set{"pool": "mine"}, d.Labels)
	after, _ := apply(d, &r, n)
	assert.Equal(t, labels.Keys("pool"), after.Overruled)
}

// Agents set a label that is ignored for some time, so that no watcher sees it.
func TestIgnoredLabelsAreNotOverruled(t *testing.T) {
	ignored, err := labels.ParsePatterns("pool")
	require.NoError(t, err)
	ignoring := labels.Policy{Mode: labels.Replace, Ignored: ignored}
	for name, seen := range map[string]txn.Transaction{
		"another label changes":  {Type: txn.Updated, Labels: set{"rack": "r2"}},
		"the node is deleted":    {Type: txn.Deleted, Labels: set{"rack": "r1"}},
		"it was restored before": {Type: txn.Deleted, Labels: set{"rack": "r1"}, UID: "b"},
	} {
		r := record.Record{Node: "node-1", Labels: set{"rack": "r1", "pool": "a"}, Machine: "pool", Revision: revision.MustParse("1"), Source: "a"}
		if seen.UID == "b" {
			r.Restored = record.Restoration{UID: "b", Revision: revision.MustParse("2")}
		} else {
			seen.UID = "a"
		}
		seen.Node, seen.Revision = "node-1", revision.MustParse("3")
		d := preserve.Decide(seen, &r, nil, ignoring)
		require.Equal(t, preserve.Save, d.Action, name)
		assert.Empty(t, d.Record.Overruled, name)
		assert.Equal(t, labels.Keys("pool"), preserve.Decide(seen, &r, nil, replaceAll).Record.Overruled, "%s, and nothing is ignored", name)
	}
}

// The watchers restart with --ignore-labels before the processors do, as in a rollout of both.
func TestIgnoredByTheWatchersFirst(t *testing.T) {
	ignored, err := labels.ParsePatterns("pool")
	require.NoError(t, err)
	ignoring := labels.Policy{Mode: labels.Replace, Ignored: ignored}
	r := &record.Record{Node: "node-1", Labels: set{"rack": "r1", "pool": "x"}, Machine: labels.Keys("pool"), Revision: revision.MustParse("100"), Source: "a"}
	// A watcher that ignores the label starts, and the live node differs from the record.
	unseen := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "a", Revision: revision.MustParse("110"), Labels: set{"rack": "r1"}}
	r, _, _ = carriedOut(t, unseen, r, nil, replaceAll) // the processor has not restarted yet
	// All programs ignore it. The node ends. Then none ignores it, and the node returns.
	gone := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "a", Revision: revision.MustParse("120"), Labels: set{"rack": "r1"}}
	r, _, _ = carriedOut(t, gone, r, nil, ignoring)
	n := &nodeview.Node{UID: "b", Revision: revision.MustParse("200"), Labels: set{"pool": "x"}, Ownership: agents.Ownership{Machine: labels.Keys("pool")}}
	_, n, _ = carriedOut(t, txn.Transaction{Type: txn.Added, Node: "node-1", UID: "b", Revision: revision.MustParse("200"), Labels: n.Labels, Machine: n.Machine}, r, n, replaceAll)
	assert.Contains(t, n.Labels, "pool", "the restore removes a label that an agent has set and no user has removed")
}
