package plugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// endOf returns the transaction that a watcher records for the end of a deleted Node.
func endOf(t *testing.T, e *env, n *metav1.PartialObjectMetadata) txn.Transaction {
	t.Helper()
	later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "later-"}}
	require.NoError(t, e.client.Create(t.Context(), later))
	n.ResourceVersion = later.ResourceVersion
	return txn.Of(txn.Deleted, viewed(n))
}
