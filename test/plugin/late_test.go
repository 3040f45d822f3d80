package plugin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
)

// watched makes it appear that a watcher runs, whose events may arrive late.
func (e *env) watched() {
	e.t.Helper()
	now := metav1.NewMicroTime(time.Now())
	require.NoError(e.t, e.client.Create(e.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.members, Name: "late-watcher", Labels: set{ring.Label: "watcher"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("late-watcher"), LeaseDurationSeconds: new(int32(600)), AcquireTime: &now, RenewTime: &now},
	}))
}

func (e *env) queue() *queue.Queue { return &queue.Queue{Client: e.client, Namespace: e.transactions} }

// edited saves a node, edits it and deletes it, and returns the transactions for events that a
// watcher has seen and not stored.
func (e *env) edited(name string) (update, end txn.Transaction) {
	e.t.Helper()
	e.create(name, of(name, "r1"))
	e.must("save", name)
	e.label(name, "r2")
	n := e.live(name)
	e.delete(name)
	later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "later-"}}
	require.NoError(e.t, e.client.Create(e.t.Context(), later))
	seen := viewed(n)
	update, end = txn.Of(txn.Updated, seen), txn.Of(txn.Deleted, seen)
	end.Revision = revision.Of(later.ResourceVersion)
	return update, end
}

func TestSetDoesNotOvertakeWhatAWatcherHasSeen(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor", "--save-delay=1h")
	update, end := e.edited("node-1")
	e.watched()
	assert.Contains(t, e.fails("set", "node-1", "more=x", "--timeout=1s"), "the end of node \"node-1\" is not on record after 1s")
	done := make(chan result)
	go func() { done <- e.run("set", "node-1", "more=x") }()
	for _, late := range []txn.Transaction{update, end} {
		late.ObservedAt = time.Now()
		require.NoError(t, e.queue().Put(t.Context(), late))
	}
	r := <-done // it does not wait for --save-delay, either
	require.Zero(t, r.code, r.stderr)
	want := of("node-1", "r2")
	want["more"] = "x"
	assert.Equal(t, want, e.record(t, "node-1").Labels)
}

func TestSetOfANodeWithAnUnseenEndNeedsAFlag(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.edited("node-1")
	e.watched()
	e.must("set", "node-1", "more=x", "--ignore-missing-end")
	assert.Equal(t, "r1", e.record(t, "node-1").Labels["rack"])
	e.must("set", "node-1", "more=y", "--overwrite") // labels set by hand belong to no incarnation
}

func TestRestoreDoesNotOvertakeWhatAWatcherHasSeen(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	update, end := e.edited("node-1")
	e.watched()
	e.create("node-1", machine("node-1"))
	assert.Contains(t, e.fails("restore", "node-1", "--timeout=1s"), "is not on record after 1s")
	e.late(update)
	e.late(end)
	e.must("restore", "node-1")
	own, _ := e.node(t, "node-1")
	assert.Equal(t, of("node-1", "r2"), own)
}

// A watcher stored the same event first, without marking it as urgent.
func TestSaveDoesNotWaitForTheBatchPeriod(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor", "--save-delay=1h")
	e.create("node-1", of("node-1", "r1"))
	seen := txn.Of(txn.Updated, viewed(e.live("node-1")))
	seen.ObservedAt = time.Now()
	require.NoError(t, e.queue().Put(t.Context(), seen))
	assert.Contains(t, e.must("save", "node-1", "--dry-run=client"), "node/node-1 would be saved: a watcher has recorded this")
	assert.Contains(t, e.must("save", "node-1"), "node/node-1 saved: ")
	e.saved("node-1", of("node-1", "r1"))
}

func TestForgottenLabelsDoNotComeBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	update, end := e.edited("away")
	e.must("forget", "away", "--yes")
	e.late(update)
	e.late(end)
	assert.Nil(t, e.record(t, "away"), "it was forgotten")
	assert.NotContains(t, e.must("list"), "away")
	assert.Contains(t, e.fails("show", "away"), `node "away" not found`)
	assert.Contains(t, e.fails("forget", "away", "--yes"), "no labels are saved")
	assert.Empty(t, e.must("export"))
	assert.Contains(t, e.run("status").stdout, "Records:        0")
	e.start("watcher")
	e.create("away", machine("away"))
	e.saved("away", machine("away"))
	own, marker := e.node(t, "away")
	assert.Equal(t, machine("away"), own, "a node that was forgotten is new")
	assert.Empty(t, marker)
}

// A node is forgotten so that it keeps its current labels, and a watcher stores events of its
// former incarnation late.
func TestForgottenNodeThatIsThereKeepsItsLabels(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	update, end := e.edited("node-1")
	e.create("node-1", of("node-1", "r3"))
	added := txn.Of(txn.Added, viewed(e.live("node-1")))
	e.must("forget", "node-1", "--yes")
	for _, late := range []txn.Transaction{update, end, added} {
		e.late(late)
	}
	own, _ := e.node(t, "node-1")
	assert.Equal(t, of("node-1", "r3"), own)
	assert.Equal(t, of("node-1", "r3"), e.record(t, "node-1").Labels)
}

// The Node has the marker of the imported record, but its labels have changed since.
func TestImportOntoANodeWithTheMarkerOfThatVersion(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	e.delete("node-1")
	e.create("node-1", machine("node-1"))
	e.must("restore", "node-1")
	backup := e.file(e.must("export", "node-1"))
	e.label("node-1", "oops")
	e.must("save", "node-1")

	printed := e.must("import", backup, "--overwrite")
	assert.Contains(t, printed, "node/node-1 replaced")
	assert.Contains(t, printed, "node/node-1 restored")
	own, _ := e.node(t, "node-1")
	assert.Equal(t, of("node-1", "r1"), own)
	require.NoError(t, e.client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}},
		rawMerge(`{"metadata":{"labels":{"other":"x"}}}`)))
	e.must("save", "node-1")
	assert.Equal(t, "r1", e.record(t, "node-1").Labels["rack"], "what was imported")
}

// Other products create ConfigMaps in every namespace, and have Leases.
func TestForeignObjectsAreIgnored(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	before := map[string]string{}
	for _, namespace := range []string{e.transactions, e.metadata} {
		for _, name := range []string{"kube-root-ca.crt", "istio-ca-root-cert", "openshift-service-ca.crt"} {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: set{"app.kubernetes.io/managed-by": "others"}}, Data: set{"ca.crt": "-----BEGIN"}}
			require.NoError(t, e.client.Create(t.Context(), cm))
			before[namespace+"/"+name] = cm.ResourceVersion
		}
		require.NoError(t, e.client.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "election", Labels: set{"of": "others"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("somebody"), LeaseDurationSeconds: new(int32(600))},
		}))
	}
	status := e.run("status")
	assert.Contains(t, status.stdout, "Malformed:      0")
	assert.Contains(t, status.stdout, "Locks:          -")
	assert.Contains(t, status.stdout, "Records:        1")
	assert.NotContains(t, e.must("list"), "istio")
	assert.NotContains(t, e.must("export"), "istio")
	assert.Contains(t, e.fails("discard", "istio-ca-root-cert", "--yes"), "not found")
	assert.Contains(t, e.fails("forget", "istio-ca-root-cert", "--yes"), "is not a record")
	taken := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio-ca-root-cert}\ndata: {labels_restored: \"5\", rack: r1}\n"
	assert.Contains(t, e.fails("import", e.file(taken), "--overwrite"), "istio-ca-root-cert belongs to another product, remove it first")
	for key, version := range before {
		cm := &corev1.ConfigMap{}
		namespace, name, _ := strings.Cut(key, "/")
		require.NoError(t, e.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, cm))
		assert.Equal(t, version, cm.ResourceVersion, "%s is as it was", key)
	}
}
