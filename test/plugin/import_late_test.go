package plugin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
)

// TestImportIsNotUndoneByARepeatedTransaction covers a transaction that is recorded and applied
// several times. After the end of a node is applied, a person rolls the labels back to an older
// export. Then another watcher, which was cut off, records the same end.
func TestImportIsNotUndoneByARepeatedTransaction(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	old := e.file(e.must("export"))
	e.label("node-1", "r2")
	e.must("save", "node-1")
	end := e.live("node-1")
	e.delete("node-1")
	late := endOf(t, e, end)
	e.late(late)
	require.Equal(t, of("node-1", "r2"), e.record(t, "node-1").Labels)
	require.True(t, e.record(t, "node-1").Ended)

	e.must("import", old, "--overwrite")
	require.Equal(t, of("node-1", "r1"), e.record(t, "node-1").Labels)
	e.late(late)
	assert.Equal(t, of("node-1", "r1"), e.record(t, "node-1").Labels, "that transaction was applied before")
}

// TestImportOverAFloorKeepsItsPromise checks that transactions recorded before the node was
// forgotten have no effect any more.
func TestImportOverAFloorKeepsItsPromise(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	old := e.file(e.must("export"))
	e.label("node-1", "r2")
	end := e.live("node-1")
	e.delete("node-1")
	late := endOf(t, e, end)
	e.must("forget", "node-1", "--yes")
	e.must("import", old)
	e.late(late)
	assert.Equal(t, of("node-1", "r1"), e.record(t, "node-1").Labels)
}

// TestImportKeepsEditsWhileAnAdditionWaits: the record of a node is lost. The node returns and is edited,
// and no processor runs until its record is imported.
func TestImportKeepsEditsWhileAnAdditionWaits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.start("watcher", "--record-updates=false"), e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.remove("node-1")
	old := e.file(e.must("export"))
	e.stop(w)
	e.stop(p)
	e.lose("node-1")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: set{corev1.LabelHostname: "node-1", corev1.LabelOSStable: "linux"}}}
	require.NoError(t, e.client.Create(t.Context(), n, client.FieldOwner("kubelet")))
	time.Sleep(time.Until(n.CreationTimestamp.Add(time.Second))) // managedFields have whole seconds
	e.label("node-1", "r2")
	e.start("watcher", "--record-updates=false")
	e.recorded("added", n.UID)
	imported := make(chan result)
	go func() { imported <- e.run("import", old) }()
	e.eventually(func(c *assert.CollectT) { assert.NotNil(c, e.record(c, "node-1")) }, "the record is there")
	time.Sleep(time.Second) // the request for the restore follows; it has the name of the addition, so nothing shows it
	e.start("processor")
	r := <-imported
	require.Zero(t, r.code, r.stderr)
	own, _ := e.node(t, "node-1")
	assert.Equal(t, "r2", own["rack"], r.stdout)
}

// endOf returns the transaction that a watcher records for the end of a deleted Node.
func endOf(t *testing.T, e *env, n *metav1.PartialObjectMetadata) txn.Transaction {
	t.Helper()
	later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "later-"}}
	require.NoError(t, e.client.Create(t.Context(), later))
	n.ResourceVersion = later.ResourceVersion
	return txn.Of(txn.Deleted, viewed(n))
}
