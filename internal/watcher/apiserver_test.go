package watcher_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
	"nodekeeper.dev/internal/watcher/barrier"
	"nodekeeper.dev/test/controlplane"
)

// patience is how long a test waits for an expected result. It is long enough for a busy machine.
const patience = 3 * time.Minute

// cluster is a test's part of the API server: its namespaces, and nodes with a unique name prefix.
type cluster struct {
	client.WithWatch
	transactions, records string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c, err := client.NewWithWatch(api.Config, client.Options{})
	require.NoError(t, err)
	return &cluster{WithWatch: c, transactions: controlplane.Namespace(t, c), records: controlplane.Namespace(t, c)}
}

// addNode creates a node whose name no other test uses. It is deleted at the end of the test.
func (c *cluster) addNode(t *testing.T, name string, own set) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + c.transactions, Labels: own}}
	require.NoError(t, c.Create(t.Context(), n))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, client.IgnoreNotFound(c.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}})))
	})
	return n
}

// edit changes a node as a user does, and returns its new resourceVersion.
func (c *cluster) edit(t *testing.T, n *corev1.Node, change func(*corev1.Node)) string {
	t.Helper()
	before := n.DeepCopy()
	change(n)
	require.NoError(t, c.Patch(t.Context(), n, client.MergeFrom(before)))
	return n.ResourceVersion
}

// watch runs a watcher as the program does, until stop is called or the test ends. It returns when
// the watcher records.
func (c *cluster) watch(t *testing.T, fault ...faults.Fault) (stop func()) {
	t.Helper()
	stream := &barrier.Stream{}
	informers, err := cache.New(api.Config, cache.Options{
		NewInformer:      stream.NewInformer,
		DefaultTransform: service.ViewNodes(nodeview.View{}),
	})
	require.NoError(t, err)
	node := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	nodes, err := informers.GetInformer(t.Context(), node, cache.BlockUntilSynced(false))
	require.NoError(t, err)
	w, err := watcher.New(t.Context(), watcher.Config{
		Client: faults.Client(c.WithWatch, fault...), Nodes: nodes, Stream: stream, Silence: watcher.DefaultSilence,
		Events: events.NewFakeRecorder(1000), Metrics: prometheus.NewRegistry(),
		TransactionNamespace: c.transactions, MetadataNamespace: c.records, RecordUpdates: true,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	informerCtx, stopInformers := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, informers.Start(informerCtx)) })
	wg.Go(func() { assert.NoError(t, w.RunBarrier(informerCtx)) })
	wg.Go(func() {
		defer stopInformers() // a manager ends its informers last
		assert.NoError(t, w.Run(ctx))
	})
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	require.EventuallyWithT(t, func(ct *assert.CollectT) { assert.NoError(ct, w.Ready(nil)) }, patience, 10*time.Millisecond)
	return stop
}

// waitQueued waits for the transactions of a node and returns them.
func (c *cluster) waitQueued(t *testing.T, node string, want ...string) []txn.Transaction {
	t.Helper()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		assert.Equal(ct, want, kinds(queued(t, c, c.transactions, node)))
	}, patience, 20*time.Millisecond)
	return queued(t, c, c.transactions, node)
}

// waitLast waits until the last transactions of a node are of these types.
func (c *cluster) waitLast(t *testing.T, node string, want ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		all := kinds(queued(t, c, c.transactions, node))
		assert.Equal(ct, want, all[max(0, len(all)-len(want)):])
	}, patience, 20*time.Millisecond)
}

func kinds(all []txn.Transaction) []string {
	texts := []string{}
	for _, transaction := range all {
		texts = append(texts, string(transaction.Type))
	}
	return texts
}

func TestLifeOfANode(t *testing.T) {
	c := newCluster(t)
	stop := c.watch(t)
	n := c.addNode(t, "node", set{"rack": "r7", "example.com/team": "blue"})
	versions := []string{n.ResourceVersion}
	c.edit(t, n, func(n *corev1.Node) { n.Annotations = set{"heart": "beat"} })
	versions = append(versions, c.edit(t, n, func(n *corev1.Node) { n.Labels["rack"] = "r8" }))
	c.edit(t, n, func(n *corev1.Node) { n.Labels[labels.Marker] = "3" })
	last := c.edit(t, n, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	require.NoError(t, c.Delete(t.Context(), n))

	all := c.waitQueued(t, n.Name, "added", "updated", "deleted")
	stop()
	assert.Equal(t, set{"rack": "r7", "example.com/team": "blue"}, all[0].Labels)
	assert.Equal(t, set{"rack": "r8", "example.com/team": "blue"}, all[1].Labels)
	assert.Equal(t, set{"rack": "r8", "example.com/team": "blue"}, all[2].Labels)
	assert.Equal(t, "3", all[2].Marker)
	for i, version := range versions {
		assert.Equal(t, version, all[i].Revision.String())
	}
	order, err := resourceversion.CompareResourceVersion(all[2].Revision.String(), last)
	require.NoError(t, err)
	assert.Positive(t, order, "a delete has a resourceVersion of its own")
	for _, transaction := range all {
		assert.Equal(t, n.UID, transaction.UID)
		assert.Equal(t, n.Name, transaction.Node)
	}
}

func TestNodeWithFinalizerIsDeletedWhenGone(t *testing.T) {
	c := newCluster(t)
	c.watch(t)
	n := c.addNode(t, "node", set{"rack": "r7"})
	c.edit(t, n, func(n *corev1.Node) { n.Finalizers = []string{"example.com/drain"} })
	require.NoError(t, c.Delete(t.Context(), n))
	c.edit(t, n, func(n *corev1.Node) { n.Labels["rack"] = "r8" })
	c.waitQueued(t, n.Name, "added", "updated")
	c.edit(t, n, func(n *corev1.Node) { n.Finalizers = nil })
	all := c.waitQueued(t, n.Name, "added", "updated", "deleted")
	assert.Equal(t, set{"rack": "r8"}, all[2].Labels)
}

// smallPages splits every paged list into many pages.
func smallPages(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if (&client.ListOptions{}).ApplyOptions(opts).Limit > 0 {
				opts = append(opts, client.Limit(2))
			}
			return c.List(ctx, list, opts...)
		},
	})
}

func TestStartComparesNodesWithTheirRecords(t *testing.T) {
	c := newCluster(t)
	c.WithWatch = smallPages(c.WithWatch)
	saved := set{"rack": "r7"}
	var quiet, changed, foreign, restored, unsaved, unreadable *corev1.Node
	for name, n := range map[string]**corev1.Node{
		"quiet": &quiet, "changed": &changed, "foreign": &foreign, "restored": &restored, "unsaved": &unsaved, "unreadable": &unreadable,
	} {
		*n = c.addNode(t, name, saved)
	}
	for _, r := range []record.Record{
		{Node: quiet.Name, Source: quiet.UID},
		{Node: changed.Name, Source: changed.UID},
		{Node: foreign.Name, Source: "an earlier incarnation"},
		{Node: restored.Name, Source: "an earlier incarnation", Restored: record.Restoration{UID: restored.UID, Revision: revision.Of(restored.ResourceVersion)}},
		{Node: "node-that-is-away", Source: "gone"},
	} {
		r.Revision, r.Labels = revision.MustParse("3"), saved
		require.NoError(t, c.Create(t.Context(), r.ConfigMap(c.records)))
	}
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.records, Name: unreadable.Name}}
	require.NoError(t, c.Create(t.Context(), broken))
	c.edit(t, changed, func(n *corev1.Node) { n.Labels["rack"] = "r8" })
	c.edit(t, quiet, func(n *corev1.Node) { n.Annotations = set{"heart": "beat"} })

	stop := c.watch(t)
	for n, want := range map[*corev1.Node]string{changed: "updated", foreign: "added", unsaved: "added", unreadable: "added"} {
		c.waitQueued(t, n.Name, want)
	}
	stop() // this also stores the remaining events

	got := map[string][]string{}
	for _, n := range []*corev1.Node{quiet, changed, foreign, restored, unsaved, unreadable} {
		got[n.Name] = kinds(queued(t, c, c.transactions, n.Name))
	}
	assert.Equal(t, map[string][]string{
		quiet.Name: {}, changed.Name: {"updated"}, foreign.Name: {"added"}, restored.Name: {}, unsaved.Name: {"added"}, unreadable.Name: {"added"},
	}, got)
	assert.Empty(t, queued(t, c, c.transactions, "node-that-is-away"))
	for _, transaction := range queued(t, c, c.transactions, changed.Name) {
		assert.Equal(t, changed.ResourceVersion, transaction.Revision.String())
		assert.Equal(t, set{"rack": "r8"}, transaction.Labels)
	}
}

// churn creates, deletes and recreates nodes, and returns their names.
func (c *cluster) churn(t *testing.T, nodes int) (names []string) {
	t.Helper()
	for i := range nodes {
		n := c.addNode(t, fmt.Sprint("node-", i), set{"rack": "r0"})
		for range 3 {
			c.edit(t, n, func(n *corev1.Node) { n.Labels["rack"] += "x" })
			c.edit(t, n, func(n *corev1.Node) { n.Annotations = set{"heart": n.Labels["rack"]} })
		}
		require.NoError(t, c.Delete(t.Context(), n))
		names = append(names, c.addNode(t, fmt.Sprint("node-", i), set{"rack": "r0"}).Name)
	}
	return names
}

func TestTwoWatchersRecordTheSame(t *testing.T) {
	c := newCluster(t)
	c.watch(t)
	c.watch(t)
	for _, node := range c.churn(t, 5) {
		c.waitLast(t, node, "deleted", "added") // the end may supersede changes before it
	}
}

func TestFaultsOfRealAPIServerLoseNothing(t *testing.T) {
	for name, fault := range map[string]interface {
		faults.Fault
		Hits() int
	}{
		"outage":       &faults.Outage{Calls: faults.Calls{Verb: faults.Create, Skip: 2, Times: 6}},
		"answers lost": &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Create, Skip: 1, Times: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.watch(t, fault)
			for _, node := range c.churn(t, 3) {
				c.waitLast(t, node, "deleted", "added") // the end may supersede changes before it
			}
			assert.Positive(t, fault.Hits())
		})
	}
}
