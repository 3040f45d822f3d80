package processor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// event returns a transaction of an incarnation that is gone, so its resourceVersion is arbitrary.
func event(typ txn.Type, node string, uid types.UID, resourceVersion string, own set) txn.Transaction {
	return txn.Transaction{
		Type: typ, Node: node, UID: uid, Revision: revision.Of(resourceVersion), Labels: own,
		ObservedAt: time.Now(), FoundsRecord: typ == txn.Added,
	}
}

func TestSave(t *testing.T) {
	t.Parallel()
	old := record.Record{Labels: set{"rack": "r1"}, Revision: revision.MustParse("9"), Source: "a"}
	restored := record.Record{Labels: set{"rack": "r1"}, Revision: revision.MustParse("9"), Source: "a", Restored: record.Restoration{UID: "b", Revision: revision.MustParse("50")}}
	ended := old
	ended.Ended = true
	seenLater := record.Record{Labels: set{"rack": "r1"}, Revision: revision.MustParse("9"), Source: "a", Restored: record.Restoration{UID: "a", Revision: revision.MustParse("10")}, Ended: true}
	table := map[string]struct {
		saved       *record.Record
		transaction txn.Transaction
		want        *record.Record
	}{
		"first labels by an add":           {nil, event(txn.Added, "", "a", "9", set{"rack": "r1"}), &old},
		"first labels by an update":        {nil, event(txn.Updated, "", "a", "9", set{"rack": "r1"}), &old},
		"first labels by a delete":         {nil, event(txn.Deleted, "", "a", "9", set{"rack": "r1"}), &ended},
		"add that founds no record":        {nil, txn.Transaction{Type: txn.Added, UID: "a", Revision: revision.MustParse("9"), ObservedAt: time.Now()}, nil},
		"newer labels":                     {&old, event(txn.Updated, "", "a", "10", set{"rack": "r2"}), &record.Record{Labels: set{"rack": "r2"}, Revision: revision.MustParse("10"), Source: "a"}},
		"no labels any more":               {&old, event(txn.Deleted, "", "a", "10", set{}), &record.Record{Labels: set{}, Revision: revision.MustParse("10"), Source: "a", Ended: true}},
		"older labels":                     {&old, event(txn.Updated, "", "a", "8", set{"rack": "r0"}), &old},
		"the same labels":                  {&old, event(txn.Deleted, "", "a", "10", set{"rack": "r1"}), &seenLater},
		"of one that never got its labels": {&old, event(txn.Deleted, "", "c", "70", set{"rack": "r3"}), &old},
		"of the restored one":              {&restored, event(txn.Deleted, "", "b", "51", set{"rack": "r2"}), &record.Record{Labels: set{"rack": "r2"}, Revision: revision.MustParse("51"), Source: "b", Ended: true}},
		"of the restored one, before that": {&restored, event(txn.Updated, "", "b", "49", set{"rack": "r2"}), &restored},
		"add of one that is gone":          {&old, event(txn.Added, "", "c", "70", set{"rack": "r3"}), &old},
	}
	c := newCluster(t)
	nodeOf := func(name string) string { return c.name(strings.NewReplacer(" ", "-", ",", "").Replace(name)) }
	for name, tc := range table {
		if tc.saved != nil {
			saved := *tc.saved
			saved.Node = nodeOf(name)
			c.save(t, saved)
		}
		tc.transaction.Node = nodeOf(name)
		c.put(t, tc.transaction)
	}
	c.process(t, setup{})
	for name, tc := range table {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.waitApplied(t, nodeOf(name))
			if tc.want != nil {
				tc.want = new(*tc.want)
				tc.want.Node = nodeOf(name)
			}
			assert.Equal(t, tc.want, c.record(t, nodeOf(name)))
		})
	}
}

// returned creates a node that has come back without its labels, and returns it and its Added
// transaction.
func (c *cluster) returned(t *testing.T, own set, saved record.Record) (*corev1.Node, txn.Transaction) {
	t.Helper()
	n := c.addNode(t, c.name("node"), own)
	saved.Node = n.Name
	c.save(t, saved)
	return n, seen(txn.Added, n)
}

var lastLife = record.Record{Labels: set{"rack": "r7", "example.com/team": "blue", zone: "a"}, Revision: revision.MustParse("9"), Source: "the last life"}

func TestRestore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mode       labels.Mode
		live, want set
	}{
		"replace":                  {labels.Replace, set{"new": "n", "rack": "r1"}, set{"rack": "r7", "example.com/team": "blue", zone: "a", labels.Marker: "9"}},
		"replace, no labels":       {labels.Replace, nil, set{"rack": "r7", "example.com/team": "blue", zone: "a", labels.Marker: "9"}},
		"replace, live label":      {labels.Replace, set{zone: "b"}, set{"rack": "r7", "example.com/team": "blue", zone: "b", labels.Marker: "9"}},
		"replace, marker of older": {labels.Replace, set{labels.Marker: "5"}, set{"rack": "r7", "example.com/team": "blue", zone: "a", labels.Marker: "9"}},
		"merge":                    {labels.Merge, set{"new": "n", "rack": "r1"}, set{"new": "n", "rack": "r7", "example.com/team": "blue", zone: "a", labels.Marker: "9"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n, added := c.returned(t, tc.live, lastLife)
			c.put(t, added)
			c.process(t, setup{mode: tc.mode})
			c.waitApplied(t, n.Name)

			after := c.node(t, n.Name)
			assert.Equal(t, tc.want, after.Labels)
			assert.Equal(t, noted(t, lastLife, after), c.record(t, n.Name))
		})
	}
}

// noted returns the record after its labels were restored onto the node, whose state is now n.
func noted(t *testing.T, r record.Record, n *corev1.Node) *record.Record {
	t.Helper()
	seen := nodeview.View{}.OfWhole(n.DeepCopy(), time.Now())
	r.Node = n.Name
	left := nodeview.Node{UID: seen.UID, Revision: seen.Revision, Labels: seen.Labels, Ownership: agents.Ownership{Owners: seen.Owners}}
	return new(preserve.Noted(r, nodeview.Node{}, left, labels.MachineBound{}))
}

func TestRestoreThatWasDoneButNotNotedIsNoted(t *testing.T) {
	t.Parallel()
	for name, rack := range map[string]string{"as it was": "r7", "edited since": "edited"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			saved := record.Record{Labels: set{"rack": "r7"}, Revision: revision.MustParse("9"), Source: "the last life"}
			n, added := c.returned(t, set{"rack": rack, labels.Marker: "9"}, saved)
			c.put(t, added)
			c.process(t, setup{})
			c.waitApplied(t, n.Name)
			assert.Equal(t, n.ResourceVersion, c.node(t, n.Name).ResourceVersion, "the node is left alone")
			assert.Equal(t, noted(t, saved, n), c.record(t, n.Name))
		})
	}
}

func TestNodeThatHasItsLabelsIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]func(*record.Record, *corev1.Node){
		"source": func(r *record.Record, n *corev1.Node) { r.Source, r.Revision = n.UID, revision.Of(n.ResourceVersion) },
		"restored": func(r *record.Record, n *corev1.Node) {
			r.Restored = record.Restoration{UID: n.UID, Revision: revision.Of(n.ResourceVersion)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := c.addNode(t, c.name("node"), set{"rack": "edited"})
			saved := lastLife
			saved.Node = n.Name
			own(&saved, n)
			c.save(t, saved)
			c.put(t, seen(txn.Added, n))
			c.process(t, setup{})
			c.waitApplied(t, n.Name)
			assert.Equal(t, n.ResourceVersion, c.node(t, n.Name).ResourceVersion)
			assert.Equal(t, &saved, c.record(t, n.Name))
		})
	}
}

func TestAddOfAnEarlierIncarnationRestoresNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, added := c.returned(t, set{"new": "n"}, lastLife)
	added.UID = "was there for a moment"
	c.put(t, added)
	c.process(t, setup{})
	c.waitApplied(t, n.Name)
	assert.Equal(t, n.ResourceVersion, c.node(t, n.Name).ResourceVersion)
}

func TestQueueIsAppliedOldestFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("node")
	var want []string
	for _, version := range []string{"100", "9", "11", "10", "99"} {
		c.put(t, event(txn.Updated, node, "a", version, set{"rack": "r" + version}))
	}
	for _, version := range []string{"9", "10", "11", "99", "100"} {
		want = append(want, txn.NodeHash(node)+"."+version)
	}
	log := &faults.Log{Calls: faults.Calls{Verb: faults.Delete, Kind: "ConfigMap"}}
	c.process(t, setup{faults: []faults.Fault{log}})
	c.waitApplied(t, node)
	var removed []string
	for _, entry := range log.Entries() {
		require.NoError(t, entry.Err)
		removed = append(removed, entry.Name)
	}
	assert.Equal(t, want, removed)
	assert.Equal(t, &record.Record{Node: node, Labels: set{"rack": "r100"}, Revision: revision.MustParse("100"), Source: "a"}, c.record(t, node))
}

func TestWhatComesWhileTheProcessorRunsIsApplied(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.process(t, setup{})
	node := c.name("node")
	for _, version := range []string{"9", "10", "11"} {
		c.put(t, event(txn.Updated, node, "a", version, set{"rack": "r" + version}))
		c.waitApplied(t, node)
		assert.Equal(t, version, c.record(t, node).Revision.String())
	}
}

func TestForeignAnnotationsOfARecordStay(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("node")
	cm := record.Record{Node: node, Labels: set{"rack": "r1"}, Revision: revision.MustParse("9"), Source: "a"}.ConfigMap(c.records)
	cm.Annotations["example.com/owner"] = "somebody"
	cm.Annotations[record.AwaySinceAnnotation] = "2026-11-21T03:14:15Z"
	require.NoError(t, c.Create(t.Context(), cm))
	c.put(t, event(txn.Updated, node, "a", "10", set{"rack": "r2"}))
	c.process(t, setup{})
	c.waitApplied(t, node)
	after := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: c.records, Name: node}, after))
	assert.Equal(t, "somebody", after.Annotations["example.com/owner"])
	assert.NotContains(t, after.Annotations, record.AwaySinceAnnotation)
}
