package byhand_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// theirs returns a record of kube-state-rs.
func theirs(name string, more set) *corev1.ConfigMap {
	data := set{"node_name": name, "transaction_type": "deleted", "last_store_resource_version": "50"}
	maps.Copy(data, more)
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "records", Name: name}, Data: data}
}

func liveNode(name string, own set) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "live", Labels: own}}
}

// takeOver takes over what kube-state-rs has left behind in a cluster.
func takeOver(t *testing.T, c *inspect.Cluster, overwrite bool) map[string]*byhand.Takeover {
	t.Helper()
	found, err := byhand.Inherited(t.Context(), c)
	require.NoError(t, err)
	all := map[string]*byhand.Takeover{}
	for _, saved := range found.Saved {
		taken, err := byhand.PrepareTakeover(t.Context(), c, saved, overwrite)
		require.NoError(t, err)
		require.NoError(t, taken.Store(t.Context(), c, byhand.DryRunClient))
		require.NoError(t, taken.Store(t.Context(), c, byhand.DryRunNone))
		all[saved.Node] = taken
	}
	return all
}

func recordOf(t *testing.T, c *inspect.Cluster) *record.Record {
	t.Helper()
	stored, err := c.Records().Get(t.Context(), "node-1")
	require.NoError(t, err)
	return stored.Record
}

func TestNodeThatIsAwayGetsTheLabelsOfKubeStateRS(t *testing.T) {
	c := clusterWith(theirs("node-1", set{"rack": "r1", "example.com---SLASH---team": "blue"}))
	taken := takeOver(t, c, false)["node-1"]
	assert.True(t, taken.Taken())
	assert.Empty(t, taken.Left)
	r := recordOf(t, c)
	assert.Equal(t, set{"rack": "r1", "example.com/team": "blue"}, r.Labels)
	assert.Empty(t, r.Source, "the next incarnation gets them")
	assert.Len(t, r.Unclear.Set(), 2, "what the returned machine brings wins")

	found, err := byhand.Inherited(t.Context(), c)
	require.NoError(t, err)
	assert.Empty(t, found.Saved, "the ConfigMap is nodekeeper's now")
}

func TestLiveNodeKeepsItsLabels(t *testing.T) {
	c := clusterWith(theirs("node-1", set{"rack": "r1", "team": "blue"}), liveNode("node-1", set{"rack": "r2"}))
	taken := takeOver(t, c, true)["node-1"]
	assert.False(t, taken.Taken())
	assert.Equal(t, set{"rack": "r1", "team": "blue"}, taken.Left)
	r := recordOf(t, c)
	assert.Equal(t, set{"rack": "r2"}, r.Labels)
	assert.EqualValues(t, "live", r.Source)
}

// Everything that was recorded while the ConfigMap was in the way takes effect.
func TestPendingTransactionsAreAppliedAfterATakeover(t *testing.T) {
	came := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "first", Revision: revision.MustParse("60"), Labels: set{"rack": "r2"}, FoundsRecord: true, ObservedAt: time.Now()}
	ended := came
	ended.Type, ended.Revision, ended.Labels, ended.FoundsRecord = txn.Deleted, revision.MustParse("70"), set{"rack": "r3"}, false
	c := clusterWith(theirs("node-1", set{"rack": "r1", "team": "blue"}), came.ConfigMap("transactions"), ended.ConfigMap("transactions"))
	taken := takeOver(t, c, true)["node-1"]
	assert.False(t, taken.Taken())
	assert.Equal(t, set{"rack": "r1", "team": "blue"}, taken.Left)

	r := recordOf(t, c)
	steps := preserve.PlanAt(revision.MustParse("900"), []txn.Transaction{came, ended}, r, nil, labels.Policy{})
	last := steps[len(steps)-1]
	assert.Equal(t, preserve.Save, last.Action)
	assert.Equal(t, set{"rack": "r3"}, last.Record.Labels)
}

func TestEndInTheQueueOfKubeStateRSIsLater(t *testing.T) {
	end := theirs("node-1", set{"rack": "r2", "last_store_resource_version": "80"})
	end.Namespace, end.Name = "transactions", txn.NodeHash("node-1")+".80"
	came := end.DeepCopy()
	came.Name, came.Data = txn.NodeHash("node-1")+".90", set{"node_name": "node-1", "transaction_type": "added"}
	c := clusterWith(theirs("node-1", set{"rack": "r1"}), end, came)
	found, err := byhand.Inherited(t.Context(), c)
	require.NoError(t, err)
	assert.Len(t, found.Transactions, 2)
	takeOver(t, c, false)
	assert.Equal(t, set{"rack": "r2"}, recordOf(t, c).Labels)

	for name, taken := range takeOver(t, c, false) { // they are still there
		assert.Equal(t, "nodekeeper has a record of it already", taken.Why, name)
	}
}

func TestWhatCannotBeReadKeepsNothingElseFromBeingTakenOver(t *testing.T) {
	c := clusterWith(theirs("bad", set{"rack": "not a value"}), theirs("good", set{"rack": "r1"}),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "records", Name: "settings"}, Data: set{"rack": "r1"}})
	found, err := byhand.Inherited(t.Context(), c)
	require.NoError(t, err)
	require.Len(t, found.Unreadable, 1)
	require.ErrorContains(t, found.Unreadable[0], "ConfigMap records/bad")
	require.Len(t, found.Saved, 1)
	assert.Equal(t, "good", found.Saved[0].Node)
}

// A file may have the labels of nodes that nodekeeper knows.
func TestFileOfKubeStateRS(t *testing.T) {
	const file = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt}, data: {ca.crt: x}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: node-1}, data: {label_version: "1", rack: r1}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {label_version: "1", rack: r2}}
`
	found, err := byhand.ReadInheritance(strings.NewReader(file))
	require.NoError(t, err)
	require.Len(t, found.Saved, 2)
	own := saved()
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "records", Name: "settings"}, Data: set{"a": "b"}}
	c := clusterWith(own.ConfigMap("records"), foreign)
	own.Labels = set{"rack": "r0"}

	_, err = byhand.PrepareTakeover(t.Context(), c, found.Saved[1], true)
	require.ErrorContains(t, err, "kubectl delete configmap settings -n records")
	kept, err := byhand.PrepareTakeover(t.Context(), c, found.Saved[0], false)
	require.NoError(t, err)
	assert.False(t, kept.Taken())
	taken, err := byhand.PrepareTakeover(t.Context(), c, found.Saved[0], true)
	require.NoError(t, err)
	assert.True(t, taken.Taken())

	_, err = byhand.ReadInheritance(strings.NewReader("kind: Pod"))
	require.ErrorContains(t, err, `"Pod" is not a ConfigMap`)
}

func TestTakeoverSeesAConfigMapThatHasChanged(t *testing.T) {
	c := clusterWith(theirs("node-1", set{"rack": "r1"}))
	found, err := byhand.Inherited(t.Context(), c)
	require.NoError(t, err)
	taken, err := byhand.PrepareTakeover(t.Context(), c, found.Saved[0], false)
	require.NoError(t, err)
	var cm corev1.ConfigMap
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: "records", Name: "node-1"}, &cm))
	cm.Data["rack"] = "r2"
	require.NoError(t, c.Client.Update(t.Context(), &cm))
	require.ErrorIs(t, taken.Store(t.Context(), c, byhand.DryRunNone), byhand.ErrChanged)
}
