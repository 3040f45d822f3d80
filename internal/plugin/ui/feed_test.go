package ui_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/plugin/ui"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
)

// fed is a feed with its journal.
type fed struct {
	*ui.Feed

	t       *testing.T
	journal *ui.Journal
	surveys []*inspect.Survey
}

func newFed(t *testing.T) *fed {
	t.Helper()
	f := &fed{t: t, journal: ui.NewJournal()}
	f.Feed = ui.NewFeed(f.journal, "test", func(s *inspect.Survey, _ time.Time) ui.Health {
		f.surveys = append(f.surveys, s)
		return ui.Health{Unwell: []string{}, Stuck: []ui.Stuck{{Name: "a", Reason: strings.Repeat("x", 5000)}}}
	})
	return f
}

// entries returns the entries of a kind, by their keys.
func (f *fed) entries(kind string) map[string]map[string]any {
	f.t.Helper()
	changes, _, _, _ := f.journal.After(ui.Position{}, 100_000)
	all := map[string]map[string]any{}
	for _, ch := range changes {
		if ch.Kind == kind {
			var value map[string]any
			require.NoError(f.t, json.Unmarshal(ch.Value, &value))
			all[ch.Key] = value
		}
	}
	return all
}

func nodeOf(name, uid, version string, labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version, Labels: labels}}
}

func recordOf(n *metav1.PartialObjectMetadata) *corev1.ConfigMap {
	cm := record.Record{
		Node: n.Name, Labels: n.Labels, Source: n.UID, Revision: revision.Of(n.ResourceVersion), Restored: record.Restoration{UID: n.UID, Revision: revision.Of(n.ResourceVersion)},
	}.ConfigMap("records")
	cm.ResourceVersion = n.ResourceVersion + "0"
	return cm
}

func transactionOf(typ txn.Type, n *metav1.PartialObjectMetadata) *corev1.ConfigMap {
	tx := txn.Of(typ, nodeview.View{}.OfMetadata(n.DeepCopy()))
	tx.ObservedAt = time.Now()
	return tx.ConfigMap("transactions")
}

func TestFeedFollowsANode(t *testing.T) {
	t.Parallel()
	f := newFed(t)
	n := nodeOf("node-1", "a", "7", map[string]string{"rack": "r7"})
	f.Node(nil, n, true)
	assert.Empty(t, f.entries("node"), "its record may be there, and not read yet")
	f.Record(nil, recordOf(n), true)
	f.Node(nil, nodeOf("node-2", "b", "7", nil), true)
	f.Synced(time.Now())
	assert.Equal(t, "never-seen", f.entries("node")["node-2"]["state"])
	f.Node(nodeOf("node-2", "b", "7", nil), nil, false)
	row := f.entries("node")["node-1"]
	assert.Equal(t, "live", row["state"])
	assert.InDelta(t, 1, row["labels"], 0)
	assert.Empty(t, f.entries("happening"), "nodes that exist at the start are not reported")

	edited := nodeOf("node-1", "a", "8", map[string]string{"rack": "r8"})
	f.Node(n, edited, false)
	changed := f.entries("node")["node-1"]
	assert.NotEqual(t, row["revision"], changed["revision"], "whoever shows the node reads it again")
	f.Node(edited, nodeOf("node-1", "a", "9", map[string]string{"rack": "r8"}), false)
	assert.Equal(t, changed, f.entries("node")["node-1"], "a heartbeat is no change")

	cm := transactionOf(txn.Updated, edited)
	f.Transaction(nil, cm, false)
	assert.InDelta(t, 1, f.entries("node")["node-1"]["pending"], 0)
	queued := slices.Collect(maps.Values(f.entries("transaction")))
	require.Len(t, queued, 1)
	assert.Equal(t, "updated", queued[0]["type"])
	f.Transaction(cm, cm.DeepCopy(), false) // a retry
	assert.InDelta(t, 1, f.entries("node")["node-1"]["pending"], 0)
	f.Record(recordOf(n), recordOf(edited), false)
	f.Transaction(cm, nil, false)
	assert.InDelta(t, 0, f.entries("node")["node-1"]["pending"], 0)
	assert.Empty(t, f.entries("transaction"))

	f.Node(edited, nil, false)
	assert.Equal(t, "away", f.entries("node")["node-1"]["state"])
	back := nodeOf("node-1", "b", "12", map[string]string{"rack": "r8", "labels_restored": "8"})
	f.Node(nil, back, false)
	f.Node(back, nil, false)
	f.Record(recordOf(edited), nil, false)
	assert.Empty(t, f.entries("node"), "nothing is left")
	var whats []any
	for key := range 4 {
		whats = append(whats, f.entries("happening")[strconv.Itoa(key)]["what"])
	}
	assert.Equal(t, []any{"recorded", "saved", "restored", "forgotten"}, whats)
}

// TestFeedBoundsWhatOthersWrite: it bounds texts, and the number of happenings.
func TestFeedBoundsWhatOthersWrite(t *testing.T) {
	t.Parallel()
	f := newFed(t)
	for i := range 1000 {
		n := nodeOf(fmt.Sprintf("node-%d", i), "a", "7", map[string]string{"labels_restored": "7"})
		f.Node(nil, n, false)
	}
	all := f.entries("happening")
	assert.Len(t, all, 200)
	assert.Contains(t, all, "999")
	f.Problem("others", errors.New(strings.Repeat("é", 5000)))
	assert.Less(t, len(f.entries("problem")["others"]["text"].(string)), 400)
	malformed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{txn.TypeLabel: strings.Repeat("x", 5000)}}}
	f.Transaction(nil, malformed, false)
	assert.NotEmpty(t, f.entries("transaction")["m"]["problem"])
	assert.Less(t, len(f.entries("transaction")["m"]["problem"].(string)), 400)
	f.Synced(time.Now())
	require.Len(t, f.surveys, 1)
	assert.Len(t, f.surveys[0].Malformed, 1)
	assert.Less(t, len(f.entries("meta")["health"]["stuck"].([]any)[0].(map[string]any)["reason"].(string)), 400)
}

// TestFeedNamesTheNodeOfAMalformedTransaction if the node is known.
func TestFeedNamesTheNodeOfAMalformedTransaction(t *testing.T) {
	t.Parallel()
	f := newFed(t)
	good := transactionOf(txn.Updated, nodeOf("node-1", "a", "7", nil))
	bad := func(change func(cm *corev1.ConfigMap)) *corev1.ConfigMap {
		cm := good.DeepCopy()
		change(cm)
		return cm
	}
	for i, tc := range []struct {
		cm   *corev1.ConfigMap
		node string
	}{
		{bad(func(cm *corev1.ConfigMap) { delete(cm.Data, "type") }), "node-1"},
		{bad(func(cm *corev1.ConfigMap) { cm.Name = "node-1" }), "node-1"},
		{bad(func(cm *corev1.ConfigMap) { delete(cm.Annotations, "nodekeeper.dev/node") }), ""},
		{bad(func(cm *corev1.ConfigMap) { cm.Annotations["nodekeeper.dev/node"] = "node-2" }), ""},
		{bad(func(cm *corev1.ConfigMap) { cm.Name, cm.Annotations["nodekeeper.dev/node"] = "x", "No node" }), ""},
	} {
		f.Transaction(nil, tc.cm, false)
		h := f.entries("happening")[strconv.Itoa(i)]
		assert.Equal(t, "malformed", h["what"])
		assert.Equal(t, tc.node, h["node"])
		assert.Equal(t, tc.cm.Name, h["object"])
		assert.Equal(t, tc.node, f.entries("transaction")[tc.cm.Name]["node"])
	}
	unreadable := recordOf(nodeOf("node-3", "a", "7", nil))
	unreadable.Data["labels_restored"] = "first"
	f.Record(nil, unreadable, false)
	assert.Equal(t, "node-3", f.entries("happening")["5"]["node"])
}

func TestFeedMatchesLabels(t *testing.T) {
	t.Parallel()
	f := newFed(t)
	live, away := nodeOf("live", "a", "7", map[string]string{"rack": "r7"}), nodeOf("away", "b", "8", map[string]string{"rack": "r7", "team": "blue"})
	f.Node(nil, live, true)
	f.Node(nil, nodeOf("bare", "c", "9", nil), true)
	f.Record(nil, recordOf(nodeOf("live", "a", "6", map[string]string{"rack": "r6"})), true)
	f.Record(nil, recordOf(away), true)
	for selector, want := range map[string][]string{
		"rack=r7": {"away", "live"}, "rack=r6": nil, "rack=r7,team": {"away"}, "rack!=r7": {"bare"}, "": {"away", "bare", "live"},
	} {
		parsed, err := apilabels.Parse(selector)
		require.NoError(t, err)
		assert.Equal(t, want, f.Matching(parsed), selector)
	}
}

func leaseOf(service, name string, renewed time.Time) *coordinationv1.Lease {
	at := metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ring.Label: service}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(10)), RenewTime: &at, AcquireTime: &at},
	}
}

// TestReplicasShareTheNodes: a silent replica loses its share.
func TestReplicasShareTheNodes(t *testing.T) {
	t.Parallel()
	f, now := newFed(t), time.Now()
	for i := range 300 {
		f.Node(nil, nodeOf(fmt.Sprintf("node-%d", i), "a", "7", nil), true)
	}
	first, second := leaseOf("processor", "p-1", now), leaseOf("processor", "p-2", now)
	for _, l := range []*coordinationv1.Lease{first, second, leaseOf("watcher", "w-1", now)} {
		f.Lease(nil, l)
	}
	f.Tick(now)
	assert.Empty(t, f.entries("replica"), "before all is known")
	f.Synced(now)
	all := f.entries("replica")
	require.Len(t, all, 3)
	assert.Equal(t, []any{true, nil}, []any{all["processor/p-2"]["ready"], all["processor/p-2"]["silence"]})
	share := func(all map[string]map[string]any, name string) float64 {
		return all["processor/"+name]["sharePercent"].(float64)
	}
	assert.InDelta(t, 100, share(all, "p-1")+share(all, "p-2"), 0.01)
	assert.Greater(t, share(all, "p-1"), 20.0)
	assert.Zero(t, all["watcher/w-1"]["nodes"])

	soon := now.Add(9 * time.Second)
	f.Lease(first, leaseOf("processor", "p-1", soon))
	f.Tick(soon)
	silent := f.entries("replica")["processor/p-2"]
	assert.Equal(t, []any{true, true, "9s"}, []any{silent["alive"], silent["ready"], silent["silence"]}, "as status counts it")

	later := now.Add(15 * time.Second)
	f.Lease(first, leaseOf("processor", "p-1", later))
	f.Tick(later)
	all = f.entries("replica")
	assert.InDelta(t, 100, share(all, "p-1"), 0.01)
	assert.Equal(t, false, all["processor/p-2"]["alive"])
	f.Lease(second, nil)
	f.Tick(later)
	assert.NotContains(t, f.entries("replica"), "processor/p-2")
}

// TestReplicasAreJudgedByTheClockOfTheCluster: by a wrong local clock, live replicas would seem
// silent, or silent ones alive.
func TestReplicasAreJudgedByTheClockOfTheCluster(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
		f, inCluster := newFed(t), time.Now()
		f.Clock = func(now time.Time) time.Time { return now.Add(-wrong) }
		f.Lease(nil, leaseOf("processor", "p-1", inCluster.Add(-time.Second)))
		f.Lease(nil, leaseOf("processor", "p-2", inCluster.Add(-20*time.Second)))
		f.Synced(inCluster.Add(wrong))
		assert.Equal(t, true, f.entries("replica")["processor/p-1"]["alive"], wrong)
		assert.Equal(t, false, f.entries("replica")["processor/p-2"]["alive"], wrong)
	}
}

// TestReplicasAreUnknownWhileTheirWatchIsBroken: the page calls no replica silent that it may not
// read.
func TestReplicasAreUnknownWhileTheirWatchIsBroken(t *testing.T) {
	t.Parallel()
	f, now := newFed(t), time.Now()
	f.Node(nil, nodeOf("node-1", "a", "7", nil), true)
	l := leaseOf("processor", "p-1", now)
	f.Lease(nil, l)
	f.Synced(now)
	require.Len(t, f.entries("replica"), 1)
	last := func() *inspect.Survey { return f.surveys[len(f.surveys)-1] }

	denied := apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "", errors.New("may not watch"))
	f.Problem("replicas", fmt.Errorf("asking: %w", denied))
	f.Tick(now)
	require.ErrorIs(t, last().ReplicasUnknown, denied)
	assert.Empty(t, last().Replicas)
	assert.Empty(t, f.entries("replica"))
	f.Lease(l, leaseOf("processor", "p-1", now)) // by the right to list, before the next watch is refused
	f.Tick(now.Add(2 * time.Minute))
	require.ErrorIs(t, last().ReplicasUnknown, denied)
	f.Solved("replicas", now) // the right was granted
	f.Tick(now.Add(time.Second))
	require.Error(t, last().ReplicasUnknown, "what was missed may not be there yet")
	f.Tick(now.Add(3 * time.Second))
	require.NoError(t, last().ReplicasUnknown)
	assert.Len(t, last().Replicas, 1)
	assert.Len(t, f.entries("replica"), 1)
}

// TestHealthIsUnknownWhileTheWatchOfTheNodesIsBroken: outdated state does not count.
func TestHealthIsUnknownWhileTheWatchOfTheNodesIsBroken(t *testing.T) {
	t.Parallel()
	f, now := newFed(t), time.Now()
	f.Synced(now)
	unwell := func() []any { return f.entries("meta")["health"]["unwell"].([]any) }
	require.Empty(t, unwell())
	f.Problem("nodes", errors.New("connection refused"))
	f.Tick(now)
	assert.Equal(t, []any{"the state of nodekeeper is unknown: connection refused"}, unwell())
	assert.Empty(t, f.entries("meta")["health"]["stuck"])
	f.Solved("nodes", now)
	f.Tick(now.Add(3 * time.Second))
	assert.Empty(t, unwell())
}

func TestFlowCountsWhatComesAndGoes(t *testing.T) {
	t.Parallel()
	f, now := newFed(t), time.Unix(1_000_000, 0)
	f.Tick(now)
	for i := range 5 {
		cm := transactionOf(txn.Updated, nodeOf(fmt.Sprintf("node-%d", i), "a", "7", nil))
		f.Transaction(nil, cm, false)
		f.Transaction(cm, nil, false)
	}
	f.Tick(now.Add(2 * time.Second))
	flow := f.entries("meta")["flow"]
	assert.InDelta(t, 5, flow["recorded"].([]any)[59], 0)
	assert.InDelta(t, 5, flow["applied"].([]any)[59], 0)
	f.Tick(now.Add(time.Hour))
	assert.InDelta(t, 0, f.entries("meta")["flow"]["recorded"].([]any)[58], 0)
}

func TestProblemEndsWhenTheWatchWorks(t *testing.T) {
	t.Parallel()
	f, now := newFed(t), time.Now()
	f.Problem("others", errors.New("forbidden"))
	f.Tick(now.Add(time.Hour))
	assert.Equal(t, "forbidden", f.entries("problem")["others"]["text"])
	f.Solved("others", now)
	f.Problem("others", errors.New("cut"))
	f.Tick(now.Add(3 * time.Second))
	assert.Equal(t, "cut", f.entries("problem")["others"]["text"], "it broke again")
	f.Solved("others", now)
	f.Tick(now.Add(3 * time.Second))
	assert.Empty(t, f.entries("problem"))
}

// BenchmarkTick measures the work of a feed of 5,000 nodes in each second with changes.
func BenchmarkTick(b *testing.B) {
	now := time.Now()
	f := ui.NewFeed(ui.NewJournal(), "test", func(*inspect.Survey, time.Time) ui.Health { return ui.Health{} })
	for i := range 5000 {
		n := nodeOf(fmt.Sprintf("node-%d", i), "a", "7", map[string]string{"rack": "r7"})
		f.Node(nil, n, true)
		f.Record(nil, recordOf(n), true)
	}
	l := leaseOf("processor", "p-1", now)
	f.Synced(now)
	for b.Loop() {
		f.Lease(l, l)
		f.Tick(now)
	}
}
