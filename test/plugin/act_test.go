package plugin_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/txn"
)

// TestByHandGoesByTheDecision checks that users cannot do by hand what the decision rejects from a
// watcher.
func TestByHandGoesByTheDecision(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	assert.Contains(t, e.must("restore", "node-1"), "no labels are saved for this node")
	assert.Contains(t, e.must("save", "node-1", "--dry-run=client"), "would be saved: first labels of this node (dry run)")
	assert.Nil(t, e.record(t, "node-1"), "a dry run stores nothing")
	e.must("save", "node/node-1")
	e.delete("node-1")
	for _, command := range []string{"save", "restore"} {
		assert.Contains(t, e.fails(command, "node-1"), "is away")
		assert.Contains(t, e.fails(command, "node-0"), `node "node-0" not found`)
	}

	e.create("node-1", machine("node-1"))
	assert.Contains(t, e.must("save", "node-1"), "not saved: it does not have its saved labels: kubectl nodekeeper restore node-1")
	assert.Equal(t, of("node-1", "r1"), e.record(t, "node-1").Labels)
	e.must("restore", "node-1", "--dry-run=server")
	own, _ := e.node(t, "node-1")
	assert.Equal(t, machine("node-1"), own, "a dry run changes nothing")
	assert.Contains(t, e.must("restore", "node-1"), "node/node-1 restored: 3 labels")
	e.label("node-1", "r2")
	assert.Contains(t, e.must("restore", "node-1"), "not restored: this incarnation has its labels")
	own, _ = e.node(t, "node-1")
	assert.Equal(t, "r2", own["rack"], "an edit after the restore stays")
}

func TestWhatPeopleSaveWaitsForNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor", "--save-delay=1h")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	e.saved("node-1", of("node-1", "r1"))
}

func TestCommandsWarnIfNoProcessorRuns(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create("node-1", of("node-1", "r1"))
	assert.Contains(t, e.fails("save", "--all", "--timeout=500ms"), "1 transaction not applied after 500ms (node-1)")
	assert.Len(t, e.queued(t), 1, "it stays")
	assert.Contains(t, e.run("status", "--stuck-after=0s").stdout, "1 thing stuck")
	r := e.run("status")
	assert.Equal(t, 1, r.code)
	assert.Regexp(t, `(?s)^Status: +unwell: no ready watcher, no ready processor\n`, r.stdout, "half a second is not stuck")
	e.start("processor")
	e.saved("node-1", of("node-1", "r1"))
}

func TestForgetAsksAndIsConditional(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	for stdin, message := range map[string]string{"": "give --yes", "n\n": "aborted", "\n": "aborted"} {
		r := e.runWith(stdin, "forget", "node-1")
		assert.Equal(t, 1, r.code)
		assert.Contains(t, r.stderr, message)
	}
	assert.Contains(t, e.fails("forget", "node-1", "node-2", "--yes"), `no labels are saved for node "node-2"`)
	e.must("forget", "node-1", "--yes", "--dry-run=server")
	require.NotNil(t, e.record(t, "node-1"))
	e.label("node-1", "r2")
	e.must("forget", "node-1", "--yes")
	own, _ := e.node(t, "node-1")
	assert.Equal(t, of("node-1", "r2"), own, "the node keeps its labels")
	assert.Equal(t, of("node-1", "r2"), e.record(t, "node-1").Labels, "and its record starts over with them")
}

func TestPruneLeavesWhatIsNotJustAway(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.start("processor")
	for _, name := range []string{"away", "locked", "live", "pending"} {
		e.create(name, of(name, "r1"))
	}
	e.must("save", "--all")
	e.stop(p)
	e.label("pending", "r2")
	e.run("save", "pending", "--timeout=0s") // stays in the queue
	for _, name := range []string{"away", "locked", "pending"} {
		e.delete(name)
	}
	now := metav1.NewMicroTime(time.Now())
	require.NoError(t, e.client.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.transactions, Name: "locked", Labels: set{nodelock.Label: nodelock.LabelValue}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("processor"), LeaseDurationSeconds: new(int32(60)), AcquireTime: &now, RenewTime: &now},
	}))
	assert.Contains(t, e.refuses("prune"), "older-than")
	assert.Contains(t, e.refuses("prune", "--older-than=soon"), "older-than")
	assert.Contains(t, e.run("prune", "--older-than=1d", "--yes").stderr, "No node has been away")
	printed := e.must("prune", "--older-than=0s", "--yes")
	assert.Equal(t, "node/away forgotten\nnode/locked kept: a processor is working on it\n", printed)
	assert.Nil(t, e.record(t, "away"))
	for _, name := range []string{"locked", "live", "pending"} {
		assert.NotNil(t, e.record(t, name), name)
	}
}

func TestRetryOfWhatIsStillMalformedChangesNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.transactions, Name: "notes", Labels: set{txn.TypeLabel: "added"}}, Data: set{"type": "added"}}
	require.NoError(t, e.client.Create(t.Context(), broken))
	marked := func() {
		e.eventually(func(c *assert.CollectT) {
			var cm corev1.ConfigMap
			require.NoError(c, e.client.Get(t.Context(), types.NamespacedName{Namespace: e.transactions, Name: "notes"}, &cm))
			assert.Equal(c, "true", cm.Labels["nodekeeper.dev/malformed"])
		}, "it is marked")
	}
	marked()
	r := e.run("status")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stdout, "kubectl nodekeeper discard notes")
	assert.Contains(t, e.must("retry", "notes"), "if it is still malformed, it is quarantined again")
	marked()
	assert.Contains(t, e.fails("retry", "nothing"), "kubectl nodekeeper pending")
	e.must("discard", "notes", "--yes")
	assert.Empty(t, e.queued(t))
	assert.NotContains(t, e.run("status").stdout, "stuck")
}

// TestDeletionWithoutAProcessor checks that a node counts as stuck if it cannot be deleted because
// no processor protects nodes any more.
func TestDeletionWithoutAProcessor(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.start("watcher")
	e.create("node-1", of("node-1", "r1"))
	setFinalizers := func(list string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
		require.NoError(t, e.client.Patch(t.Context(), n, rawMerge(`{"metadata":{"finalizers":`+list+`}}`)))
	}
	setFinalizers(`["example.com/hold","nodekeeper.dev/save-labels"]`)
	require.NoError(t, e.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}))
	assert.NotContains(t, e.run("status", "--stuck-after=0s").stdout, "finalizer", "nodekeeper does not keep it: another finalizer is there")
	setFinalizers(`["nodekeeper.dev/save-labels"]`)
	e.eventually(func(c *assert.CollectT) {
		r := e.run("status", "--stuck-after=1s")
		assert.Equal(c, 1, r.code)
		assert.Regexp(c, `node-1: its deletion has been waiting for \d+s for the finalizer nodekeeper.dev/save-labels\n +run a processor`, r.stdout)
	}, "it is stuck")
	assert.NotContains(t, e.run("status").stdout, "finalizer", "a few seconds are not stuck")
	setFinalizers(`[]`)
}

// TestGateThatIsClosedLaterIsNotAsOldAsItsNode closes the gate of a Node that has existed for a
// while.
func TestGateThatIsClosedLaterIsNotAsOldAsItsNode(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create("node-1", set{"rack": "r1"})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	require.NoError(t, e.client.Get(t.Context(), client.ObjectKeyFromObject(n), n))
	assert.Empty(t, e.must("show", "node-1", "-o", "jsonpath={.node.gatedSince}"))
	require.Eventually(t, func() bool { return time.Since(n.CreationTimestamp.Time) > 2*time.Second }, patience, period)
	pending := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"labels_restored":"pending"}}}`))
	require.NoError(t, e.client.Patch(t.Context(), n, pending, client.FieldOwner("somebody")))
	for _, args := range [][]string{{"show", "node-1", "-o", "jsonpath={.node.gatedSince}"}, {"list", "-o", "jsonpath={.items[0].gatedSince}"}} {
		since, err := time.Parse(time.RFC3339, e.must(args...))
		require.NoError(t, err)
		assert.Greater(t, since, n.CreationTimestamp.Time, args)
	}
}

// TestGateWithoutAProcessor checks that such a gate is reported as stuck, and not as a restore.
func TestGateWithoutAProcessor(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("watcher")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{labels.Marker: labels.Pending}}}
	n.Spec.Taints = []corev1.Taint{nodeview.StartupTaint()}
	require.NoError(t, e.client.Create(t.Context(), n))
	e.eventually(func(c *assert.CollectT) {
		r := e.run("status", "--stuck-after=1s")
		assert.Equal(c, 1, r.code)
		assert.Regexp(c, `node-1: it has been waiting for \d+s for its labels behind the taint nodekeeper.dev/restoring`, r.stdout)
		assert.Contains(c, e.must("show", "node-1"), "behind the taint nodekeeper.dev/restoring for a processor to save its labels\n")
		assert.Regexp(c, `(?m)^Last restored: +-$`, r.stdout)
	}, "it is stuck")
	e.start("processor")
	e.eventually(func(c *assert.CollectT) {
		assert.NotContains(c, e.run("status", "--stuck-after=1s").stdout, "restoring")
		opened := &corev1.Node{}
		assert.NoError(c, e.client.Get(t.Context(), types.NamespacedName{Name: "node-1"}, opened))
		assert.False(c, slices.ContainsFunc(opened.Spec.Taints, nodeview.IsStartupTaint))
	}, "it is opened")
}

// TestGateWithoutItsMarker checks that status names such a Node, which no processor opens by
// itself, with the command that lets one open it. A Node with other taints is well, and so is a
// Node that has just got the startup taint.
func TestGateWithoutItsMarker(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.start("watcher"), e.start("processor")
	e.create("node-1", set{"rack": "r1"})
	e.create("node-2", set{"rack": "r1"})
	e.saved("node-1", set{"rack": "r1"})
	e.saved("node-2", set{"rack": "r1"})
	e.settled()
	for name, taint := range map[string]corev1.Taint{
		"node-1": nodeview.StartupTaint(), "node-2": {Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoSchedule},
	} {
		n := &corev1.Node{}
		require.NoError(t, e.client.Get(t.Context(), types.NamespacedName{Name: name}, n))
		n.Spec.Taints = []corev1.Taint{taint}
		require.NoError(t, e.client.Update(t.Context(), n))
	}
	assert.NotContains(t, e.must("status"), "stuck", "it has been there for a moment")
	const open = "kubectl label node node-1 labels_restored=pending --overwrite"
	e.eventually(func(c *assert.CollectT) {
		r := e.run("status", "--stuck-after=2s")
		assert.Equal(c, 1, r.code)
		assert.Contains(c, r.stdout, "1 thing stuck")
		assert.Regexp(c, `node-1: the taint nodekeeper.dev/restoring keeps pods away.*\n +add that, .*: `+open+`\n`, r.stdout)
	}, "it is stuck")
	cmd := e.Command(t.Context(), "kubectl", strings.Fields(open)[1:]...)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	e.eventually(func(c *assert.CollectT) {
		r := e.run("status", "--stuck-after=0s")
		assert.Zero(c, r.code, r.stdout)
	}, "a processor has opened it")
	e.stop(w)
	e.stop(p)
}

// TestUnreadableRecord checks that every command reports the record, and that only removing it has
// an effect.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: "node-1"}}
	require.NoError(t, e.client.Patch(t.Context(), cm, rawMerge(`{"data":{"labels_restored":"none"}}`)))

	assert.Equal(t, 1, e.run("status").code)
	assert.Contains(t, e.must("list"), "unreadable")
	assert.Contains(t, e.must("show", "node-1"), "not a readable record")
	assert.Equal(t, 2, e.run("diff", "node-1").code)
	assert.Contains(t, e.fails("export"), `"node-1" is not exported`)
	assert.Contains(t, e.fails("save", "node-1", "--timeout=500ms"), "not applied")
	assert.Contains(t, e.must("pending", "-o", "wide"), "wait")
	e.must("forget", "node-1", "--yes", "--ignore-pending")
	e.saved("node-1", of("node-1", "r1"))
}

func TestErrorsNameTheRemedy(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for message, args := range map[string][]string{
		"give the name of one node: kubectl nodekeeper show NODE": {"show"},
		"see kubectl nodekeeper list --help":                      {"list", "--xyz"},
		"--state=gone is not known: use unreadable, restoring":    {"list", "--state=gone"},
		"--sort-by=size is not known":                             {"list", "--sort-by=size"},
		"-o csv is not known: use table, wide, json, yaml":        {"list", "-o", "csv"},
		"is not the name of a node":                               {"show", "Node_1"},
		"give the names of nodes, or --all":                       {"save"},
		"--dry-run=yes is not known: use none, client, server":    {"save", "--all", "--dry-run=yes"},
		`no command "stat": did you mean status?`:                 {"stat"},
	} {
		assert.Contains(t, e.refuses(args...), message, strings.Join(args, " "))
	}
	assert.Contains(t, e.fails("show", "node-0"), "see kubectl nodekeeper list")
	assert.Contains(t, e.fails("list", "--request-timeout=1ns"), "The API server does not answer")
	assert.Contains(t, e.run("save", "--all").stderr, "No nodes found.")
	r := e.run("status", "--server=https://127.0.0.1:1")
	assert.Equal(t, 1, r.code)
	assert.Regexp(t, `(?s)^Status: +unwell: the state of nodekeeper is unknown: .*check that it runs`, r.stdout)
	assert.Contains(t, e.run("status", "--server=https://127.0.0.1:1", "-o", "json").stdout, "the state of nodekeeper is unknown")
	assert.Equal(t, 2, e.run("status", "--what").code)
	e.Flags = append(e.Flags, "--metadata-namespace=not-there")
	r = e.run("status")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stdout, "unwell: namespace not-there is missing, no ready watcher")
	assert.Contains(t, e.run("export").stderr, "No records found in namespace not-there.", "it is no backup")
	e.Kubeconfig = "/none"
	assert.Contains(t, e.fails("list"), "check that it runs, and that --kubeconfig or --context names it", "as for kubectl, that is localhost:8080")
}
