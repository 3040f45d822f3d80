package plugin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
)

// live returns the metadata of a Node.
func (e *env) live(name string) *metav1.PartialObjectMetadata {
	e.t.Helper()
	n := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	require.NoError(e.t, e.client.Get(e.t.Context(), types.NamespacedName{Name: name}, n))
	return n
}

// viewed returns what a view without agents sees of a Node.
func viewed(n *metav1.PartialObjectMetadata) *nodeview.Node {
	return nodeview.View{}.OfMetadata(n.DeepCopy())
}

// late records an event like a watcher that is late.
func (e *env) late(t txn.Transaction) {
	e.t.Helper()
	t.ObservedAt = time.Now()
	q := &queue.Queue{Client: e.client, Namespace: e.transactions}
	require.NoError(e.t, q.Put(e.t.Context(), t))
	e.settled()
}

// TestSetIsWhatTheNextIncarnationGets covers events of former incarnations that are recorded late,
// whether these incarnations were the source of the record or restored from it.
func TestSetIsWhatTheNextIncarnationGets(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	source := e.live("node-1")
	e.delete("node-1")
	e.create("node-1", machine("node-1"))
	e.must("restore", "node-1")
	restored := e.live("node-1")
	e.delete("node-1")

	e.must("set", "node-1", "rack=r2", "--overwrite")
	e.must("set", "node-1", "rack=r3", "extra=yes", "example.com/team-", "--overwrite")
	edited := set{"kubernetes.io/hostname": "node-1", "rack": "r3", "extra": "yes"}
	require.Equal(t, edited, e.record(t, "node-1").Labels)

	for _, former := range []*metav1.PartialObjectMetadata{source, restored} {
		for _, typ := range []txn.Type{txn.Added, txn.Updated, txn.Deleted} {
			event := txn.Of(typ, viewed(former))
			event.Labels["rack"] = "late"
			e.late(event)
			require.Equal(t, edited, e.record(t, "node-1").Labels, "after a late %s", typ)
		}
	}

	e.start("watcher")
	e.create("node-1", machine("node-1"))
	e.restored("node-1", edited)
	e.label("node-1", "r4") // an edit after the restore is kept as usual
	edited["rack"] = "r4"
	e.saved("node-1", edited)
	e.stop(p)
}

func TestSetWaitsForWhatIsPending(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.start("watcher"), e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.saved("node-1", of("node-1", "r1"))
	e.settled()
	e.stop(p)
	e.label("node-1", "r2")
	e.remove("node-1")
	e.stop(w)

	assert.Contains(t, e.fails("set", "node-1", "more=x", "--timeout=1s"), "still has 2 pending transactions after 1s")
	done := make(chan result)
	go func() { done <- e.run("set", "node-1", "more=x") }()
	e.start("processor")
	r := <-done
	require.Zero(t, r.code, r.stderr)
	want := of("node-1", "r2") // pending labels are not lost
	want["more"] = "x"
	assert.Equal(t, want, e.record(t, "node-1").Labels)
}

func TestSetChecksWhatItIsGiven(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	before := e.record(t, "node-1")
	assert.Contains(t, e.fails("set", "node-1", "rack=r2", "--overwrite"), "kubectl label node node-1")
	e.delete("node-1")
	for change, message := range map[string]string{
		"rack":              "give key=value",
		"rack=a b":          "not a label value",
		"-x=y":              "see kubectl nodekeeper set --help", // a shell parses it as a flag
		"a/b/c=d":           "not a label key",
		"labels_restored=1": "nodekeeper's own label",
	} {
		assert.Contains(t, e.refuses("set", "node-1", change), message, change)
	}
	assert.Contains(t, e.refuses("set", "node-1"), "give what to change")
	assert.Contains(t, e.refuses("set", "node-1", "rack-", "rack=r2"), "both set and removed")
	assert.Contains(t, e.fails("set", "node-1", "rack=r2"), "give --overwrite")
	assert.Contains(t, e.fails("set", "node-2", "a=b"), "kubectl nodekeeper list")
	assert.Equal(t, before, e.record(t, "node-1"))
	e.must("set", "node-1", "rack=r2", "--overwrite", "--dry-run=server")
	assert.Equal(t, before, e.record(t, "node-1"))
}

// Without a Lease of any replica, the command cannot know that no watcher has seen the end.
func TestSetDoesNotGuessWhetherAnyoneWatches(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	e.delete("node-1")
	released := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: "watcher-0", Labels: set{ring.Label: "watcher"}}}
	require.NoError(t, e.client.Create(t.Context(), released), "what a watcher of a former release has left")
	right := e.Flags[2]
	e.Flags[2] = "--membership-namespace=elsewhere"
	message := e.fails("set", "node-1", "note=x")
	assert.Contains(t, message, `no replica has a Lease in namespace "elsewhere"`)
	assert.Contains(t, message, "--ignore-missing-end")
	assert.NotContains(t, e.record(t, "node-1").Labels, "note")
	e.create("node-1", nil)
	assert.Contains(t, e.fails("restore", "node-1"), `no replica has a Lease in namespace "elsewhere"`)
	e.delete("node-1")
	e.must("set", "node-1", "note=x", "--ignore-missing-end")
	e.Flags[2] = right
	e.must("set", "node-1", "note=y", "--overwrite") // a processor runs and no watcher
	assert.Equal(t, "y", e.record(t, "node-1").Labels["note"])
}
